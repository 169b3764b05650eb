"""The name of the service in telemetry: `eventbridge`, unless the OTEL_* variables name another."""

from __future__ import annotations

import os

from opentelemetry.sdk.resources import Resource


def service() -> Resource:
    """Return the resource of all telemetry of this process."""
    named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Resource.create({} if named else {"service.name": "eventbridge"})
