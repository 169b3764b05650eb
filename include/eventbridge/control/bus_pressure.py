"""Checks a bus before publishing: free space on its disk, and the lag of its runners."""

from __future__ import annotations

from collections.abc import Mapping

from eventbridge.errors import UserError
from eventbridge.model.partition import Partition
from eventbridge.policy.bus_pressure import BusLook
from eventbridge.rules import Bus, RuleSet
from eventbridge.runtime.owner_quota import storage_refusal
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.store_size import store_quota
from eventbridge.sources.protocol import DiskBackedBus, LogSource


class BusWatch:
    """An open bus whose pressure is checked; one thread at a time may use it."""

    def __init__(self, runtime: Runtime, bus: Bus) -> None:
        self._runtime = runtime
        self._bus = bus
        self._source: LogSource | None = None

    def look(self, runners: list[str], rules: RuleSet) -> BusLook:
        """Return the pressure of the bus for these runners, with the quotas that today's rules give its owner.

        Raises BusError or LedgerError if it cannot be determined.
        """
        full = storage_refusal(self._runtime, rules, self._bus)
        try:
            source = self._source = self._source or self._runtime.open_source(self._bus)
            free = source.free_bytes() if isinstance(source, DiskBackedBus) else None
            return BusLook(free, self._backlog(source, runners), store_quota(self._runtime), full)
        except UserError:  # a queue source does not report how much waits
            return BusLook(None, None, store_quota(self._runtime), full)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the bus."""
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def _backlog(self, source: LogSource, runners: list[str]) -> int | None:
        """Return the lag of the runner that is furthest behind; None without a limit, or a runner."""
        if self._bus.max_backlog is None or not runners:
            return None
        ends = source.ends()
        return max(sum(self._lag(source, ends, runner)) for runner in runners)

    def _lag(self, source: LogSource, ends: Mapping[Partition, int], runner: str) -> list[int]:
        committed = {row.partition: row.offset for row in self._runtime.ledger.consumer_offsets(runner)}
        if not committed and self._bus.source.start_at == "latest":
            return [0]  # it has never run, and starts at the end
        return [
            max(0, end - committed[partition]) if partition in committed else max(0, end - source.earliest(partition))
            for partition, end in ends.items()
        ]
