"""Deliveries to a file by a target of today's clock. Serves the tests of the file target."""

from __future__ import annotations

import uuid
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from eventbridge.config.target_locations import TargetLocations
from eventbridge.model.outcome import Response
from eventbridge.targets.file.location import FileLocation, location_of
from eventbridge.targets.file.target import FileTarget
from eventbridge.targets.protocol import Request


def now() -> datetime:
    return datetime.now(UTC)


def later(seconds: float = 30.0) -> datetime:
    return now() + timedelta(seconds=seconds)


def location(path: Path) -> FileLocation:
    """Return a path that may be written to."""
    return location_of(str(path), TargetLocations((path.parent,)))


def deliver(target: FileTarget, *payloads: bytes, until: datetime | None = None) -> list[Response]:
    requests = [Request(n, str(uuid.uuid4()), payload, "application/json") for n, payload in enumerate(payloads)]
    return [response for _, response in target.deliver(requests, until or later())]


def written(path: Path, *payloads: bytes) -> bytes:
    """Deliver payloads with a target of their own and return the whole file."""
    with closing(FileTarget(location(path), clock=now)) as target:
        assert all(response.accepted for response in deliver(target, *payloads))
        target.flush()
    return path.read_bytes()
