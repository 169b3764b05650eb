"""What a delivery knows beside its event, for tests of transforms that do not look at it."""

from __future__ import annotations

from datetime import UTC, datetime

from eventbridge.transform import Scope

SCOPE = Scope("rule", "bus", "target", "0190aaaa-0000-8000-8000-000000000001", datetime(2026, 5, 1, 12, tzinfo=UTC))
