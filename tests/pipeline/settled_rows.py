"""Settled deliveries as rows of a settlement, for tests of sending that change one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

import pyarrow as pa

from eventbridge.model.outcome import SettledDelivery
from eventbridge.store import schemas


def table_of(settled: Iterable[SettledDelivery]) -> pa.Table:
    """Return records as rows of schema SETTLEMENT."""
    return pa.Table.from_pylist([asdict(each) for each in settled], schema=schemas.SETTLEMENT)
