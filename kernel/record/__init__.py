"""What a run is: its messages, steps, calls and texts as plain values.

The lowest room: imports nothing of the kernel but `errors`. No I/O, no clock, no ids.
"""

from typing import TYPE_CHECKING

from kernel.door import door

if TYPE_CHECKING:
    from kernel.record.canonical import canonical_json, compact_json, digest, parse_json, to_jsonable, valid_text
    from kernel.record.fault import MAX_ATTEMPT_CHARS, MAX_CHARS, MAX_REASON_CHARS, clipped, describe, is_cancelled
    from kernel.record.messages import (
        Message,
        MessageView,
        ModelParams,
        Reading,
        Reply,
        Request,
        Role,
        ToolCall,
        ToolSpec,
        Usage,
        bounded,
        merged,
        output_bound,
    )
    from kernel.record.observation import ArtifactError, ArtifactStore, show
    from kernel.record.run import (
        DEFAULT_MAX_COST_USD,
        FORMAT_VERSION,
        GUARD_OK,
        OUTCOMES,
        STOP_REASONS,
        Approval,
        Attempt,
        Budget,
        BudgetReading,
        Call,
        CallRecord,
        Chat,
        ContextLimits,
        Decision,
        Fault,
        Guard,
        GuardVerdict,
        Language,
        Mark,
        Outcome,
        Policy,
        PolicyMode,
        Price,
        Protocol,
        Run,
        RunEnd,
        RunHead,
        Step,
        StepMarks,
        StopReason,
        ToolFault,
    )
    from kernel.record.settings import check_function, check_kind, check_number, checked_prices, checked_settings
    from kernel.record.texts import Texts, replacement_problem, texts_for
    from kernel.record.transcript import (
        FINISH,
        READ_RANGE,
        RequestDigest,
        identified,
        initial_messages,
        messages_after,
        offered_tools,
        result_text,
        shown_text,
    )
else:
    __getattr__ = door(
        __name__,
        canonical="canonical_json compact_json digest parse_json to_jsonable valid_text",
        fault="MAX_ATTEMPT_CHARS MAX_CHARS MAX_REASON_CHARS clipped describe is_cancelled",
        messages="""
            Message MessageView ModelParams Reading Reply Request Role ToolCall ToolSpec Usage bounded merged output_bound
        """,
        observation="ArtifactError ArtifactStore show",
        run="""
            Approval Attempt DEFAULT_MAX_COST_USD Budget BudgetReading Call CallRecord Chat ContextLimits Decision FORMAT_VERSION
            Fault GUARD_OK Guard GuardVerdict Language Mark OUTCOMES Outcome Policy PolicyMode Price Protocol
            Run RunEnd RunHead STOP_REASONS Step StepMarks StopReason ToolFault
        """,
        settings="check_function check_kind check_number checked_prices checked_settings",
        texts="Texts replacement_problem texts_for",
        transcript="""
            FINISH READ_RANGE RequestDigest identified initial_messages messages_after offered_tools result_text
            shown_text
        """,
    )
