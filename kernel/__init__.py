"""Run an LLM agent and write its trace.

    from kernel import Agent, Budget, ToolRegistry, react

Names are imported when first used, so that `import kernel` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernel.agent import Agent, react
    from kernel.conversation import Conversation
    from kernel.errors import ConfigError, ModelError, TraceError, TracefirstError
    from kernel.loop.loop import FinishContext
    from kernel.masking import Masker
    from kernel.model.openai import OpenAIModel, default_model
    from kernel.model.scripted import FunctionModel, ScriptedModel
    from kernel.record.messages import Message, ModelParams, Reply, Request, ToolCall, ToolSpec, Usage
    from kernel.record.run import Budget, ContextLimits, Guard, Policy, Price, Run, Step
    from kernel.result import RunResult
    from kernel.seams import Clock, Ids, Model
    from kernel.stores.archive import Archive, SqliteArchive
    from kernel.stores.ledger import Ledger, MemoryLedger, SqliteLedger
    from kernel.tools.registry import Tool, ToolRegistry
    from kernel.trace.settings import Tracing
    from kernel.version import VERSION as __version__

_HOMES = {
    "kernel.agent": ("Agent", "react"),
    "kernel.stores.archive": ("Archive", "SqliteArchive"),
    "kernel.conversation": ("Conversation",),
    "kernel.errors": ("ConfigError", "ModelError", "TraceError", "TracefirstError"),
    "kernel.stores.ledger": ("Ledger", "MemoryLedger", "SqliteLedger"),
    "kernel.loop.loop": ("FinishContext",),
    "kernel.masking": ("Masker",),
    "kernel.record.messages": ("Message", "ModelParams", "Reply", "Request", "ToolCall", "ToolSpec", "Usage"),
    "kernel.model.scripted": ("FunctionModel", "ScriptedModel"),
    "kernel.model.openai": ("OpenAIModel", "default_model"),
    "kernel.result": ("RunResult",),
    "kernel.record.run": ("Budget", "ContextLimits", "Guard", "Policy", "Price", "Run", "Step"),
    "kernel.seams": ("Clock", "Ids", "Model"),
    "kernel.tools.registry": ("Tool", "ToolRegistry"),
    "kernel.trace.settings": ("Tracing",),
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
