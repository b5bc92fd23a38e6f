"""The resource that spans are emitted for, as the standard variables of OpenTelemetry describe it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from kernel.record import to_jsonable
from kernel.trace import semconv as sc
from kernel.trace.span import Resource
from kernel.version import VERSION


def environment_resource(environ: Mapping[str, str] = os.environ) -> Resource:
    """Resource attributes from `OTEL_RESOURCE_ATTRIBUTES` and, before it, `OTEL_SERVICE_NAME`."""
    attributes: dict[str, Any] = {"service.name": "tracefirst"}
    for part in environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","):
        name, _, value = part.partition("=")
        if name.strip():
            attributes[unquote(name.strip())] = unquote(value.strip())
    if service := environ.get("OTEL_SERVICE_NAME"):
        attributes["service.name"] = service
    return Resource(attributes=attributes, scope_name=sc.SCOPE_NAME, scope_version=VERSION)


def described_resource(service: str | None, more: dict[str, Any]) -> Resource:
    """The environment's resource with a service name and further attributes, as JSON values."""
    base = environment_resource()
    named = {"service.name": service} if service else {}
    attributes = {**base.attributes, **to_jsonable(more), **named}
    return Resource(attributes=attributes, scope_name=base.scope_name, scope_version=base.scope_version)
