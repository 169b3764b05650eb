"""What a target said to one request."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple


class Response(NamedTuple):
    """What a target said to one request.

    `accepted` responses that carry no HTTP code come from targets such as files. `code` is an HTTP status,
    None where there was no response; then `error_class` names what happened instead
    (`Timeout`, `ConnectionRefused`, `HostUnknown`, `TlsError`, `Interrupted`, `NetworkError`, `FileError`;
    `AddressRefused`: it would have gone inside; `TokenUnavailable`: its credentials could not be had;
    `InvalidHeader`: it cannot be sent as it is, now or later; of Kafka, RocketMQ and S3 targets those of
    their pages in `docs/connectors`). `stalled_ms`: for so much of `duration_ms` this process did not listen, because
    it had no processor or was stopped; the rest is what the target took.
    """

    accepted: bool
    started_at: datetime
    duration_ms: float
    code: int | None = None
    error_class: str | None = None
    error: str | None = None
    retry_after: str | None = None  # the header as it came
    abort: bool = False  # header `webhook-delivery: abort-message`
    response_head: bytes = b""  # at most 20 KB
    stalled_ms: float = 0.0

    @property
    def took_seconds(self) -> float:
        """How long the target took, in seconds."""
        return max(0.0, self.duration_ms - self.stalled_ms) / 1000
