"""Provides a telemetry that records all calls, for tests."""

from __future__ import annotations

from eventbridge.telemetry.protocol import CheckEnded, DeliverySettled, PushEnded, StageEnded


class RecordingTelemetry:
    """Records all calls in order; while `error` is set, raises `error` instead."""

    def __init__(self) -> None:
        self.reported: list[StageEnded | PushEnded | CheckEnded] = []
        self.error: Exception | None = None
        self.closed = False
        self.settled: list[DeliverySettled] = []

    def stage_ended(self, ended: StageEnded) -> None:
        """Record the end of a stage."""
        self._keep(ended)

    def push_ended(self, ended: PushEnded) -> None:
        """Record the end of a push."""
        self._keep(ended)

    def check_ended(self, ended: CheckEnded) -> None:
        """Record a poll of the watcher."""
        self._keep(ended)

    def traces(self, delivery_id: bytes, traceparent: str | None) -> bool:
        """Return True, because everything is traced."""
        return True

    def delivery_settled(self, settled: DeliverySettled) -> None:
        """Record the delivery in `settled`."""
        self.settled.append(settled)

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True

    def _keep(self, ended: StageEnded | PushEnded | CheckEnded) -> None:
        if self.error is not None:
            raise self.error
        self.reported.append(ended)
