"""Run an LLM agent and write its trace.

    from kernel import Agent, Budget, ToolRegistry, react

Names are imported when first used, so that `import kernel` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernel.agent import Agent, react
    from kernel.archive import Archive, SqliteArchive
    from kernel.conversation import Conversation
    from kernel.errors import ConfigError, ModelError, TraceError, TracefirstError
    from kernel.ledger import Ledger, MemoryLedger, SqliteLedger
    from kernel.loop import FinishContext
    from kernel.masking import Masker
    from kernel.messages import Message, ModelParams, Reply, Request, ToolCall, ToolSpec, Usage
    from kernel.model import FunctionModel, ScriptedModel
    from kernel.openai import OpenAIModel, default_model
    from kernel.result import RunResult
    from kernel.run import Budget, ContextLimits, Guard, Policy, Price, Run, Step
    from kernel.seams import Clock, Ids, Model
    from kernel.tools import Tool, ToolRegistry
    from kernel.tracing import Tracing
    from kernel.version import VERSION as __version__

_HOMES = {
    "kernel.agent": ("Agent", "react"),
    "kernel.archive": ("Archive", "SqliteArchive"),
    "kernel.conversation": ("Conversation",),
    "kernel.errors": ("ConfigError", "ModelError", "TraceError", "TracefirstError"),
    "kernel.ledger": ("Ledger", "MemoryLedger", "SqliteLedger"),
    "kernel.loop": ("FinishContext",),
    "kernel.masking": ("Masker",),
    "kernel.messages": ("Message", "ModelParams", "Reply", "Request", "ToolCall", "ToolSpec", "Usage"),
    "kernel.model": ("FunctionModel", "ScriptedModel"),
    "kernel.openai": ("OpenAIModel", "default_model"),
    "kernel.result": ("RunResult",),
    "kernel.run": ("Budget", "ContextLimits", "Guard", "Policy", "Price", "Run", "Step"),
    "kernel.seams": ("Clock", "Ids", "Model"),
    "kernel.tools": ("Tool", "ToolRegistry"),
    "kernel.tracing": ("Tracing",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

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


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "__version__":
        return import_module("kernel.version").VERSION
    if name not in _HOME:
        raise AttributeError(f"module 'kernel' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value
