"""Says which service sends: `eventbridge`, unless the usual OTEL_* variables name another."""

from __future__ import annotations

import os

from opentelemetry.sdk.resources import Resource


def service() -> Resource:
    """Return the resource of everything that this process sends."""
    named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Resource.create({} if named else {"service.name": "eventbridge"})
