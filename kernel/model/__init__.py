"""Models: the client of OpenAI-compatible servers, and models made of a function or a script.

May import `record`, `masking` and the seams; the only room that opens sockets to models.
"""

from typing import TYPE_CHECKING

from kernel.door import door

if TYPE_CHECKING:
    from kernel.model.endpoint import place, retry_after_s
    from kernel.model.openai import OpenAIModel, default_model
    from kernel.model.scripted import FunctionModel, PromptFunction, ScriptedModel, as_model, described
    from kernel.model.sse import EventParser
else:
    __getattr__ = door(
        __name__,
        endpoint="place retry_after_s",
        openai="OpenAIModel default_model",
        scripted="FunctionModel PromptFunction ScriptedModel as_model described",
        sse="EventParser",
    )
