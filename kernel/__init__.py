"""Run an LLM agent and write its trace.

    from kernel import Agent, Budget, ToolRegistry, react

Names are imported when first used, so that `import kernel` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel.door import door
from kernel.version import VERSION as __version__

if TYPE_CHECKING:
    from kernel.agent import Agent, react
    from kernel.conversation import Conversation
    from kernel.errors import ConfigError, ModelError, TraceError, TracefirstError
    from kernel.loop import FinishContext
    from kernel.masking import Masker
    from kernel.model import FunctionModel, OpenAIModel, ScriptedModel, default_model
    from kernel.record import (
        Budget,
        ContextLimits,
        Guard,
        Message,
        ModelParams,
        Policy,
        Price,
        Reply,
        Request,
        Run,
        Step,
        ToolCall,
        ToolSpec,
        Usage,
    )
    from kernel.result import RunResult
    from kernel.seams import Clock, Ids, Model
    from kernel.stores import Archive, Ledger, MemoryLedger, SqliteArchive, SqliteLedger
    from kernel.tools import Tool, ToolRegistry
    from kernel.tracing import Tracing
else:
    __getattr__ = door(
        __name__,
        agent="Agent react",
        conversation="Conversation",
        errors="ConfigError ModelError TraceError TracefirstError",
        loop="FinishContext",
        masking="Masker",
        model="FunctionModel OpenAIModel ScriptedModel default_model",
        record="""
            Budget ContextLimits Guard Message ModelParams Policy Price Reply Request Run Step ToolCall ToolSpec Usage
        """,
        result="RunResult",
        seams="Clock Ids Model",
        stores="Archive Ledger MemoryLedger SqliteArchive SqliteLedger",
        tools="Tool ToolRegistry",
        tracing="Tracing",
    )

__all__ = [
    "Agent",
    "Archive",
    "Budget",
    "Clock",
    "ConfigError",
    "ContextLimits",
    "Conversation",
    "FinishContext",
    "FunctionModel",
    "Guard",
    "Ids",
    "Ledger",
    "Masker",
    "MemoryLedger",
    "Message",
    "Model",
    "ModelError",
    "ModelParams",
    "OpenAIModel",
    "Policy",
    "Price",
    "Reply",
    "Request",
    "Run",
    "RunResult",
    "ScriptedModel",
    "SqliteArchive",
    "SqliteLedger",
    "Step",
    "Tool",
    "ToolCall",
    "ToolRegistry",
    "ToolSpec",
    "TraceError",
    "TracefirstError",
    "Tracing",
    "Usage",
    "__version__",
    "default_model",
    "react",
]


def __dir__() -> list[str]:
    return sorted(__all__)
