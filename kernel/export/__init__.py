"""Sending spans elsewhere: the outbox, the spool on disk, OTLP over HTTP, the OpenTelemetry SDK.

May import `trace` and `record`; never the loop. Nothing here can raise into a run or slow it.
"""

from typing import TYPE_CHECKING

from kernel.door import door

if TYPE_CHECKING:
    from kernel.export.http import Client, destination
    from kernel.export.sdk import MetricsSink, SdkSink
    from kernel.export.sink import OtlpSink
else:
    __getattr__ = door(
        __name__,
        http="Client destination",
        sdk="MetricsSink SdkSink",
        sink="OtlpSink",
    )
