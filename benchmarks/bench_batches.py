"""`make bench-batches`: the memory of a streaming task after very many batches.

A streaming task runs in this process, with batches of at most four events. Everything else is as in production, except
that there is no committer process, as always with small batches. The receiver is a separate process. Peaks are the
kernel's.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import threading
import time
from contextlib import closing

from benchmarks.bench_site import RUNNER, Site, event, site
from benchmarks.bench_streaming import Load, write_rules
from benchmarks.compiled_receiver import NoCompiler, compiled_receiver

from eventbridge import fault_points
from eventbridge.repair.audit import audit
from eventbridge.runtime.stop import Stop
from eventbridge.streaming import open_batch as streaming_batch
from eventbridge.streaming.task import deliver_streaming

_EVENTS = 4
#: The number of events published but not yet read: few, so that the bus takes little memory.
_AHEAD = 40
#: The number of batches after which the reference peak is taken, and the maximum ratio of the last peak to it.
_FIRST, _MOST = 1_000, 1.1


class _Batches:
    """Counts batches as they are committed, publishes for them, and keeps the peak after each thousand."""

    def __init__(self, installation: Site, most: int) -> None:
        self._installation, self._most = installation, most
        self._committed = 0
        self.stop = Stop()
        self.peaks: dict[int, float] = {}

    def reach(self, point: str) -> None:
        """Take note of a commit; the hook of every call."""
        if point == "bus.commit":
            self._committed += 1
            if self._committed % _FIRST == 0 or self._committed == self._most:
                self.peaks[self._committed] = _peak()
                print(f"after {self._committed:>6,} batches: peak {_peak():,.0f} MiB", flush=True)  # noqa: T201
            if self._committed >= self._most:
                self.stop.set()

    def publish(self) -> None:
        """Publish half of what matches, half of what does not, until all batches are committed."""
        number, kinds = 0, ("bench", "other")
        with self._installation.bus() as bus, closing(self._installation.open()) as runtime:
            while not self.stop.is_set():
                # a batch that is behind another takes more than fill it, so that commits do not tell
                if number - sum(runtime.ledger.offsets.committed(RUNNER).values()) < _AHEAD:
                    bus.publish([(event(n, 510, kinds[n % 2]), None) for n in range(number, number + 2 * _EVENTS)])
                    number += 2 * _EVENTS
                else:
                    time.sleep(0.02)


def _peak() -> float:
    """Return the most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    """Measure, print the peaks and the goal; 1 if it is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=10_000, help="number of batches (default: 10000)")
    options = parser.parse_args()
    streaming_batch._BATCH_EVENTS = _EVENTS
    try:
        with compiled_receiver() as receiver, site(large=False) as installation:
            load = Load("streaming", "http", 0, 0)
            write_rules(installation.folder / "rules", receiver, installation.folder / "responses", {RUNNER: load})
            batches = _Batches(installation, options.batches)
            publisher = threading.Thread(target=batches.publish)
            began, cpu = time.monotonic(), time.process_time()
            with closing(installation.open()) as runtime:
                publisher.start()
                fault_points.install(batches.reach)
                try:
                    deliver_streaming(runtime, RUNNER, batches.stop)
                finally:
                    batches.stop.set()
                    publisher.join()
                    fault_points.install(None)
                took, cpu = time.monotonic() - began, time.process_time() - cpu
                differences = len(audit(runtime).differences)
    except NoCompiler as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return _report(batches.peaks, took, cpu, differences)


def _report(peaks: dict[int, float], took: float, cpu: float, differences: int) -> int:
    batches, last = max(peaks.items())
    grown = last / peaks[min(_FIRST, batches)]
    load = os.getloadavg()[0]
    each = cpu / batches * 1e3
    print(f"{took:,.0f} s, {each:,.0f} ms of CPU time a batch, load {load:.1f} at the end")  # noqa: T201
    for what, reached, most in (
        (f"peak after {batches:,} batches by that after {_FIRST:,}", grown, _MOST),
        ("differences of the audit", differences, 0),
    ):
        status = "met" if reached <= most else "MISSED"
        print(f"goal: {what} at most {most:,g}: {reached:,.3g}: {status}")  # noqa: T201
    return 0 if grown <= _MOST and not differences else 1


if __name__ == "__main__":
    sys.exit(main())
