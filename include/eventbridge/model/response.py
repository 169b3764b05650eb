"""The response of a target to one request."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple


class Response(NamedTuple):
    """The response of a target to one request.

    `accepted` responses without an HTTP code come from targets such as files. `code` is an HTTP status,
    None if there was no response; then `error_class` names what happened instead
    (`Timeout`, `ConnectionRefused`, `HostUnknown`, `TlsError`, `Interrupted`, `NetworkError`, `FileError`;
    `AddressRefused`: SSRF protection refused an internal address; `TokenUnavailable`: its credentials could not be
    obtained; `InvalidHeader`: it can never be sent as it is; for Kafka, RocketMQ and S3 targets also those on
    their pages in `docs/connectors`). `stalled_ms`: the part of `duration_ms` in which this process did not listen,
    because it had no processor or was stopped; the rest is the time that the target took.
    """

    accepted: bool
    started_at: datetime
    duration_ms: float
    code: int | None = None
    error_class: str | None = None
    error: str | None = None
    retry_after: str | None = None  # the header as received
    abort: bool = False  # header `webhook-delivery: abort-message`
    response_head: bytes = b""  # at most 20 KB
    stalled_ms: float = 0.0

    @property
    def took_seconds(self) -> float:
        """Return how long the target took, in seconds."""
        return max(0.0, self.duration_ms - self.stalled_ms) / 1000
