"""The trace: a run as spans and back, its seals, the journal that becomes the trace file.

May import `record`, `masking`, `loop` (the pure functions that derive what is masked) and the seams; never `export`.
"""

from typing import TYPE_CHECKING

from kernel.door import door

if TYPE_CHECKING:
    from kernel.trace.attributes import Reader
    from kernel.trace.codec import Problem, decode_run, encode_run, finish_span, seal, span_name
    from kernel.trace.genai import tool_from_json
    from kernel.trace.journal import JOURNAL_SUFFIX, SUFFIX, Journal, claimed, write_trace
    from kernel.trace.otlp import encode_line, encode_resource, encode_span
    from kernel.trace.otlp_json import (
        DocumentJson,
        EventJson,
        ResourceJson,
        ScopeJson,
        SpanJson,
        decode_span,
        read_base64,
        read_id,
        to_event,
        to_resource,
        to_span,
    )
    from kernel.trace.recorder import Recorder, Sink
    from kernel.trace.resource import described_resource, environment_resource
    from kernel.trace.retention import prune, trace_path
    from kernel.trace.scrub import Scrubber, masked_run
    from kernel.trace.span import (
        CLIENT,
        CONSUMER,
        ERROR,
        INTERNAL,
        OK,
        PRODUCER,
        SERVER,
        UNSET,
        AttributeValue,
        Event,
        Link,
        Resource,
        Span,
    )
    from kernel.trace.versions import why_unreadable
else:
    __getattr__ = door(
        __name__,
        attributes="Reader",
        codec="Problem decode_run encode_run finish_span seal span_name",
        genai="tool_from_json",
        journal="JOURNAL_SUFFIX Journal SUFFIX claimed write_trace",
        otlp="encode_line encode_resource encode_span",
        otlp_json="""
            DocumentJson EventJson ResourceJson ScopeJson SpanJson decode_span read_base64 read_id to_event
            to_resource to_span
        """,
        recorder="Recorder Sink",
        resource="described_resource environment_resource",
        retention="prune trace_path",
        scrub="Scrubber masked_run",
        span="""
            AttributeValue CLIENT CONSUMER ERROR Event INTERNAL Link OK PRODUCER Resource SERVER Span UNSET
        """,
        versions="why_unreadable",
    )
