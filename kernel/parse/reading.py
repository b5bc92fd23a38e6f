"""What was found, with the text around it attached."""

from __future__ import annotations

from kernel.parse.model import Found, Parsed, ParsedCall, ParseFault
from kernel.parse.visible import thought_of, visible_of


def reading(found: list[Found], masked: str) -> Parsed:
    """Calls with their thoughts: of each, the visible text since the call before it."""
    calls = []
    behind = 0
    for call in found:
        thought = thought_of(masked[behind : max(behind, call.start)]) or call.thought
        calls.append(
            ParsedCall(
                name=call.name,
                args=call.args,
                repaired=call.repaired,
                family=call.family,
                start=call.start,
                end=call.end,
                thought=thought,
                intent=call.intent,
                estimated_cost=call.estimated_cost,
            )
        )
        behind = call.end
    return Parsed(calls=tuple(calls), fault=None, thought=calls[0].thought, visible=visible_of(masked))


def faulty(fault: ParseFault, visible: str) -> Parsed:
    """No call, and why."""
    return Parsed(calls=(), fault=fault, thought=visible, visible=visible)
