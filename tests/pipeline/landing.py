"""Lands a batch in this process, for tests of shared landing and as the reference for Spark's results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

from eventbridge.pipeline.ingest.sharing import LandingResult, LandJob, Part, land_part
from eventbridge.rules.model import Bus
from eventbridge.sources.protocol import LogSource
from eventbridge.store.protocol import Store


class InProcessLander:
    """A lander without Spark, which lands parts one by one."""

    def __init__(self, store: Store, bus: Bus, open_source: Callable[[Bus], LogSource]) -> None:
        self._store = store
        self._bus = bus
        self._open_source = open_source

    def land(self, job: LandJob, parts: Sequence[Part]) -> Iterator[LandingResult]:
        """Land each part when its response is requested."""
        for part in parts:
            with closing(self._open_source(self._bus)) as source:
                yield land_part(self._store, source, self._bus, job, part)
