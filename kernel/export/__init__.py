"""Sending spans elsewhere: the outbox, the spool on disk, OTLP over HTTP, the OpenTelemetry SDK.

May import `trace` and `record`; never the loop. Nothing here can raise into a run or slow it.
"""
