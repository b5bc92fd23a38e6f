"""The record of a run: what was configured, what happened in each step, how it ended. Pure values.

Content and identity are kept apart: `RunHead`, `Step` and `RunEnd` hold content, `Marks` hold span ids and times, so
that two runs with equal content are equal step for step. `kernel.trace.codec` turns a `Run` into spans and back.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from msgspec import UNSET, Struct, UnsetType

from kernel.record.messages import Message, ModelParams, Reply, ToolSpec, Usage

FORMAT_VERSION = 1

StopReason = Literal[
    "finish",
    "max_steps",
    "token_budget",
    "cost_budget",
    "timeout",
    "unparsable_exhausted",
    "tool_error_exhausted",
    "loop_detected",
    "finish_refused_exhausted",
    "model_error",
    "cancelled",
]
STOP_REASONS: tuple[str, ...] = get_args(StopReason)

Outcome = Literal[
    "ok",
    "error",
    "unknown_tool",
    "bad_args",
    "denied",
    "timeout",
    "cancelled",
    "duplicate",
    "unknown_outcome",
]
OUTCOMES: tuple[str, ...] = get_args(Outcome)
Protocol = Literal["text", "tools"]
Language = Literal["en", "zh"]
PolicyMode = Literal["read_only", "dry_run", "allowlist", "full"]


DEFAULT_MAX_COST_USD = 10.0


class Budget(Struct, frozen=True, kw_only=True, gc=False):
    """What a run may use. Every hard limit is on, with a value that long runs survive; `None` switches it off.

    Args:
        max_steps: read–evaluate–act rounds.
        max_prompt_tokens: cumulative input tokens of all model calls.
        max_total_output_tokens: cumulative output tokens of all model calls.
        max_cost_usd: cumulative cost; needs a price for the model. Left alone it is `DEFAULT_MAX_COST_USD` where there is one.
        timeout_s: wall clock from the start of the run.
        max_errors: consecutive steps with a fault or a failed tool before the run stops.
        max_output_tokens: bound on one reply, sent to the model; of this and the one in the parameters the smaller.
        max_finish_refusals: how often `finish_check` may send an answer back.
        model_retries: further attempts after a model transport error.
    """

    max_steps: int | None = 200
    max_prompt_tokens: int | None = 50_000_000
    max_total_output_tokens: int | None = 1_000_000
    max_cost_usd: float | UnsetType | None = UNSET
    timeout_s: float | None = 3600.0
    max_errors: int = 5
    max_output_tokens: int | None = None
    max_finish_refusals: int = 3
    model_retries: int = 2


class Guard(Struct, frozen=True, kw_only=True, gc=False):
    """Loop guard settings: pairs (call, result) of the last `window` calls; `max_warnings` of the same pair stop the run.

    `similarity` (0 to 1, off by default) also takes a reworded call of the same tool with the same result for a repetition.
    """

    enabled: bool = True
    window: int = 8
    max_warnings: int = 3
    similarity: float | None = None


class Policy(Struct, frozen=True, kw_only=True, gc=False):
    """Which tools may run: `read_only` and `dry_run` never run side effects, `allowlist` runs those in `allow`.

    `source` says where the mode came from: `default`, `code`, a file name or an environment variable.
    """

    mode: PolicyMode = "full"
    allow: tuple[str, ...] = ()
    source: str = "default"


class ContextLimits(Struct, frozen=True, kw_only=True, gc=False):
    """How much is shown to the model. Characters are Unicode code points.

    Args:
        max_observation_chars: a longer observation is cut to head, mark and tail; the rest is an artifact.
        window_tokens: when the next request would pass it, older steps are condensed. `None`: never.
        keep_steps: the newest steps, which are condensed only where they alone pass the window.
    """

    max_observation_chars: int = 8000
    window_tokens: int | None = None
    keep_steps: int = 4


class Price(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """US dollars per million tokens. A cache class without a price of its own costs what input costs."""

    input_usd: float
    output_usd: float
    cache_read_usd: float | None = None
    cache_write_usd: float | None = None


class RunHead(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Everything that decides how a run goes, known before its first step. `masked_tokens`: by how many tokens its messages
    were estimated larger than they are here, where secrets in them are masked. `model_params` are what the model would have
    sent for an agent that sets none, where that is another thing than `params`; `confirm_by_run` tells that `confirm` was
    given for the run, not by the agent. `effects`: the only tools whose side effects run in a fork; `witnessed`: keys of
    side effects that were begun before this run went live, which its own steps repeat. `dropped` says which steps
    or calls a reader left out of a foreign recording."""

    agent: str
    task: str
    run_id: str
    system: str = ""
    protocol: Protocol = "text"
    language: Language = "en"
    provider: str = "custom"
    params: ModelParams = ModelParams()
    tools: tuple[ToolSpec, ...] = ()
    budget: Budget = Budget()
    guard: Guard = Guard()
    policy: Policy = Policy()
    context: ContextLimits = ContextLimits()
    price: Price | None = None
    texts: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    require_finish: bool = False
    finish_check: bool = False
    confirm: bool = False
    conversation_id: str | None = None
    turn: int = 1
    masked: tuple[str, ...] = ()
    resumes: str | None = None
    effects: tuple[str, ...] | None = None
    witnessed: tuple[str, ...] = ()
    source: str | None = None
    absent: tuple[str, ...] = ()
    masked_tokens: int = 0
    model_params: ModelParams | None = None
    confirm_by_run: bool = False
    dropped: tuple[str, ...] = ()


class Fault(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Why a reply could not be read. `rule` is a short closed-list id, `position` an offset in the raw text or -1."""

    rule: str
    message: str
    position: int = -1


class Call(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A tool call as read from a reply. `raw` keeps the argument text where it is not the compact JSON of `args`;
    `coerced` names the paths whose type the schema demanded; with a `fault` the call never reaches its tool."""

    name: str
    args: dict[str, Any] = {}
    id: str = ""
    raw: str | None = None
    repaired: bool = False
    coerced: tuple[str, ...] = ()
    fault: Fault | None = None


class Decision(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What a reply was read as. `answer` belongs to `finish`, `fault` to `fault`; `ignored` names further actions.

    `end` is where the reply begins to make up results: what stands behind it never enters the conversation.
    """

    kind: Literal["calls", "finish", "fault"]
    thought: str = ""
    calls: tuple[Call, ...] = ()
    answer: str | None = None
    fault: Fault | None = None
    ignored: tuple[str, ...] = ()
    end: int | None = None
    family: str = ""
    intent: str | None = None
    estimated_cost: float | None = None


class ToolFault(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A tool's failure: exception type or outcome, and text."""

    type: str
    message: str


class Approval(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The answer of `confirm`, bound to one call: `binding` is a digest of tool, arguments and call position. `failure` says
    why there was no answer; that is not an approval."""

    approved: bool
    binding: str
    reason: Literal["side_effect", "cost"] = "side_effect"
    failure: str | None = None


class CallRecord(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One call and its one result. `result` is the recorded value (JSON). `shown` is the text the model saw, None where
    that is just the result as text, or the error's message where the call was refused. `served_by` is `guard` or `ledger`
    where the tool did not run. `fixed`: what is shown was masked by itself and does not follow from the masked result."""

    call: Call
    outcome: Outcome
    result: Any = None
    error: ToolFault | None = None
    shown: str | None = None
    key: str | None = None
    approval: Approval | None = None
    served_by: str | None = None
    artifact: str | None = None
    fixed: bool = False


class GuardVerdict(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What the loop guard found in a step. `seen_step` is where the pair or cycle was first seen in the window; `cycle` names
    the calls of a cycle in their order, each by its tool and step; `warnings` are those of this call so far, or of all calls of the cycle."""

    verdict: Literal["ok", "warned", "answered", "loop"] = "ok"
    rule: str = ""
    tool: str = ""
    seen_step: int = 0
    period: int = 0
    cycle: tuple[str, ...] = ()
    warnings: int = 0


GUARD_OK = GuardVerdict()


class BudgetReading(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What has been used after a step, cumulative. `cost_usd` is None where no price is known; `estimated` marks
    tokens the provider did not report."""

    prompt_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    elapsed_ns: int = 0
    estimated: bool = False


class Attempt(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A failed attempt at a model call, `elapsed_ns` after the start of the run, and the wait before the next one.
    `input_tokens` is what was booked for it, where it may have been charged."""

    kind: str
    message: str
    status: int | None = None
    retry_after_s: float | None = None
    retryable: bool = True
    wait_s: float | None = None
    elapsed_ns: int = 0
    input_tokens: int | None = None


class Chat(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One model call. The request is the first `kept` messages of the previous request plus `new`; `digest` covers all
    of it with tools and parameters. Without a `reply`, the last of `attempts` says why (or the process died).
    `max_output_tokens` is the bound that the request was sent with where what is left of the budget made it smaller than that
    of the parameters, and `bounded_by` the limit that did."""

    kept: int
    new: tuple[Message, ...]
    digest: str = ""
    condensed: int = 0
    reply: Reply | None = None
    attempts: tuple[Attempt, ...] = ()
    max_output_tokens: int | None = None
    bounded_by: str = ""


class Step(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One read–evaluate–act round. `feedback` is what the kernel told the model besides observations; `refusal` is the
    reason `finish_check` gave; `errors` the streak after the step. `decision` None: the step was cut before it.
    `masked_tokens` is as in `RunHead`, for the messages that the step adds."""

    index: int
    chat: Chat | None = None
    decision: Decision | None = None
    calls: tuple[CallRecord, ...] = ()
    guard: GuardVerdict = GuardVerdict()
    feedback: str | None = None
    refusal: str | None = None
    errors: int = 0
    budget: BudgetReading | None = None
    masked_tokens: int = 0


class RunEnd(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """How a run ended. `answer` exists exactly when `stop_reason` is `finish`; the counts let a reader prove that
    nothing is missing; `alive` names tools whose thread or process could not be ended."""

    ok: bool
    stop_reason: StopReason
    answer: str | None = None
    detail: str = ""
    usage: Usage = Usage()
    cost_usd: float | None = None
    steps: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    alive: tuple[str, ...] = ()


class Mark(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Identity and times of one span: `end_ns` None while open."""

    span_id: str = ""
    start_ns: int = 0
    end_ns: int | None = None


class StepMarks(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Marks of a step's spans, calls in call order."""

    step: Mark
    chat: Mark | None = None
    calls: tuple[Mark, ...] = ()


class Run(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A whole run, or as much of it as was recorded: `end` is None where it was cut short."""

    head: RunHead
    steps: tuple[Step, ...] = ()
    end: RunEnd | None = None
    mark: Mark = Mark()
    marks: tuple[StepMarks, ...] = ()
