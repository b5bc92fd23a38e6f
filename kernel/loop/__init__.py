"""The ReAct loop: read, ask, evaluate, act, stop.

May import `record`, `parse`, `tools`, `stores` and the seams; never `model`, `trace` or `export`: models and tracers reach it as
arguments.
"""

from typing import TYPE_CHECKING

from kernel.door import door

if TYPE_CHECKING:
    from kernel.loop.act import FORK, MASKED, Confirm, ConfirmFailed
    from kernel.loop.ask import DEADLINE
    from kernel.loop.evaluation import Rules, describe, evaluate
    from kernel.loop.limits import TokenCounter, estimate_tokens, message_tokens
    from kernel.loop.loop import FinishCheck, FinishContext, Loop
    from kernel.loop.policy import POLICY_VARIABLE, policy_from
    from kernel.loop.read import Transcript, step_line
    from kernel.loop.tracer import NullTracer
else:
    __getattr__ = door(
        __name__,
        act="Confirm ConfirmFailed FORK MASKED",
        ask="DEADLINE",
        evaluation="Rules describe evaluate",
        limits="TokenCounter estimate_tokens message_tokens",
        loop="FinishCheck FinishContext Loop",
        policy="POLICY_VARIABLE policy_from",
        read="Transcript step_line",
        tracer="NullTracer",
    )
