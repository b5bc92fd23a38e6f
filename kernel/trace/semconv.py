"""Every span and attribute name, in one place.

Names that the OpenTelemetry GenAI conventions define are taken from there (v1.41, all of them still "development");
ours carry the prefix `tracefirst.`. `SCHEMA_URL` is the version of the conventions that the `gen_ai.*` names follow.
"""

SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.0"
SCOPE_NAME = "tracefirst"

# gen_ai.* and error.*: the conventions' own
OPERATION = "gen_ai.operation.name"
AGENT_NAME = "gen_ai.agent.name"
PROVIDER = "gen_ai.provider.name"
CONVERSATION_ID = "gen_ai.conversation.id"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
REQUEST_TOP_P = "gen_ai.request.top_p"
REQUEST_SEED = "gen_ai.request.seed"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_STOP = "gen_ai.request.stop_sequences"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_ID = "gen_ai.response.id"
FINISH_REASONS = "gen_ai.response.finish_reasons"
SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_DEFINITIONS = "gen_ai.tool.definitions"
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
ERROR_TYPE = "error.type"
HTTP_METHOD = "http.request.method"
HTTP_STATUS = "http.response.status_code"
URL_PATH = "url.path"

# operations: the first word of a span's name
CONVERSATION = "invoke_workflow"
INVOKE_AGENT = "invoke_agent"
CHAT = "chat"
EXECUTE_TOOL = "execute_tool"
STEP = "step"
EXCHANGE = "exchange"

SEALED = ("gen_ai.", "tracefirst.", "error.")
"""Prefixes of the attributes under the seal; anything else was added downstream."""

# ours, on every span
FORMAT = "tracefirst.format"
REQUIRES = "tracefirst.requires"
SEAL = "tracefirst.seal"
FLAGGED = "tracefirst.flagged"
STEP_INDEX = "tracefirst.step.index"
CUT = "tracefirst.otlp.cut"

# ours, on the root of a conversation
RUNS = "tracefirst.conversation.runs"

# ours, on invoke_agent
RUN_ID = "tracefirst.run.id"
TURN = "tracefirst.run.turn"
CONFIG = "tracefirst.run.config"
BUDGET = "tracefirst.budget"
GUARD = "tracefirst.guard"
POLICY = "tracefirst.policy"
CONTEXT = "tracefirst.context"
OK = "tracefirst.ok"
STOP_REASON = "tracefirst.stop_reason"
DETAIL = "tracefirst.stop_detail"
STEPS = "tracefirst.steps"
MODEL_CALLS = "tracefirst.model_calls"
TOOL_CALLS = "tracefirst.tool_calls"
ALIVE = "tracefirst.alive"
CLOSED = "tracefirst.closed"
COST = "tracefirst.usage.cost_usd"
ESTIMATED = "tracefirst.usage.estimated"

# ours, on step
DECISION = "tracefirst.step.decision"
DECIDED_CALLS = "tracefirst.step.decided_calls"
GUARD_VERDICT = "tracefirst.guard.verdict"
GUARD_DETAIL = "tracefirst.guard.detail"
SHOWN = "tracefirst.step.shown"
ARTIFACTS = "tracefirst.step.artifacts"
FIXED = "tracefirst.step.fixed"
MASKED_TOKENS = "tracefirst.step.masked_tokens"
FEEDBACK = "tracefirst.step.feedback"
REFUSAL = "tracefirst.step.refusal"
ERRORS = "tracefirst.step.errors"
BUDGET_AFTER = "tracefirst.step.budget"

# ours, on chat
KEPT = "tracefirst.request.kept"
CARRIED = "tracefirst.request.carried"
DIGEST = "tracefirst.request.digest"
PARAMS = "tracefirst.request.params"
CONDENSED = "tracefirst.request.condensed"
BOUNDED_BY = "tracefirst.request.bounded_by"
REPLY = "tracefirst.reply"
ATTEMPTS = "tracefirst.attempts"
ATTEMPT_EVENT = "tracefirst.attempt"
ATTEMPT_NUMBER = "tracefirst.attempt.number"
ATTEMPT = "tracefirst.attempt.detail"

# ours, on execute_tool
POSITION = "tracefirst.call.position"
CALL_READ = "tracefirst.call.read"
RESULT_TYPE = "tracefirst.call.result_type"
OUTCOME = "tracefirst.tool.outcome"
ERROR_MESSAGE = "tracefirst.error.message"
IDEMPOTENCY_KEY = "tracefirst.call.idempotency_key"
APPROVAL = "tracefirst.call.approval"
SERVED_BY = "tracefirst.call.served_by"
EFFECT = "tracefirst.call.effect"
"""On a call that has a side effect: its span says by the event `EFFECT_BEGUN` when that begins."""
EFFECT_BEGUN = "tracefirst.call.effect_begun"
LATE_EVENT = "tracefirst.late_result"

# ours, on an exchange that was recorded at the wire
WIRE_EXCHANGE = "tracefirst.wire.exchange"
WIRE_REQUEST = "tracefirst.wire.request"
WIRE_ANSWER = "tracefirst.wire.answer"

# ours, on the root of a replay or fork
ORIGINAL_TRACE_ID = "tracefirst.replay.original_trace_id"
REPLAY_VERDICT = "tracefirst.replay.verdict"
REPLAY_DIVERGENCE = "tracefirst.replay.divergence"
REPLAY_RAN_WITH = "tracefirst.replay.ran_with"
REPLAY_STOP_RECORDED = "tracefirst.replay.stop_reason.recorded"
REPLAY_STOP_REPLAYED = "tracefirst.replay.stop_reason.replayed"
REPLAY_STARTED = "tracefirst.replay.recorded_start"

# ours, on the span of a replay where it first differs, and on its event
DIVERGENCE_EVENT = "tracefirst.divergence"
REPLAY_STEP = "tracefirst.replay.step"
REPLAY_KIND = "tracefirst.replay.kind"
REPLAY_CAUSE = "tracefirst.replay.cause"
REPLAY_COUNTERPART = "tracefirst.replay.original_span_id"
REPLAY_PATH = "tracefirst.replay.path"
REPLAY_RECORDED = "tracefirst.replay.recorded"
REPLAY_OBSERVED = "tracefirst.replay.observed"
