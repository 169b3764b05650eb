"""Several workers land a large batch in parts, and record the same as one process would."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from pipeline.landing import InProcessLander
from pipeline.test_buffer import OnLog, landed, planned, positions

from eventbridge.errors import OffsetGapError, SparkError
from eventbridge.model.partition import Partition
from eventbridge.pipeline.ingest import sharing
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.ingest.sharing import LandingResult, LandJob, LandJobParts, Part
from eventbridge.rules import Bus
from eventbridge.runtime.runtime import Runtime
from eventbridge.testing.sources import InMemoryLog

Order = Callable[..., bytes]

FILE_EVENTS = 3


@pytest.fixture(autouse=True)
def every_batch_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every batch as large, so that it is shared among workers."""
    monkeypatch.setattr(sharing, "LARGE_EVENTS", 1)


class Workers(InProcessLander):
    """Workers that are given a job as it travels, and fail at a part (None: at none)."""

    def __init__(self, runtime: Runtime, bus: Bus, fails_at: int | None = None) -> None:
        super().__init__(runtime.store, bus, runtime.open_source)
        self._fails_at = fails_at
        self.parts: list[Part] = []

    def land(self, job: LandJob, parts: Sequence[Part]) -> Iterator[LandingResult]:
        asked = LandJobParts.from_json(LandJobParts(job, tuple(parts)).to_json())
        for number, response in enumerate(super().land(asked.job, asked.parts)):
            if number == self._fails_at:
                raise SparkError("the cluster is gone")
            self.parts.append(parts[number])
            yield response


def shared(runtime: Runtime, batch_id: str, fails_at: int | None = None) -> list[Part]:
    """Land a batch by workers and return the parts that they responded for."""
    made: list[Workers] = []

    def open_lander(bus: Bus) -> Workers:
        made.append(Workers(runtime, bus, fails_at))
        return made[-1]

    buffer(runtime, batch_id, open_lander)
    return made[0].parts if made else []


def rows_of(runtime: Runtime, batch_id: str) -> list[dict[str, Any]]:
    """Return the landed rows by partition and offset, and assert that the files are consecutive."""
    rows = landed(runtime, batch_id)
    return sorted(rows, key=lambda row: (row["partition_id"], row["offset"]))


def reconciliation_of(runtime: Runtime, batch_id: str) -> dict[int, Counter[str]]:
    """Return the totals of the recorded ranges by partition; fails if the ranges are not consecutive."""
    reconciliation: dict[int, Counter[str]] = {}
    ends: dict[int, int] = {}
    for file in runtime.ledger.files.list_for_batch(batch_id, "buffer"):
        detail: Any = file.detail
        place = detail.partition.partition_id
        assert detail.start == ends.get(place, detail.start)
        ends[place] = detail.end
        counts = {
            name: getattr(detail, name) for name in ("read", "valid", "duplicate", "malformed", "tombstone", "size")
        }
        counts |= {f"gap at {offset}": 1 for first, last in detail.gaps for offset in range(first, last)}
        reconciliation.setdefault(place, Counter()).update(counts)
    return reconciliation


@pytest.mark.parametrize("seed", range(3))
def test_workers_land_what_one_process_lands(site: Any, clock: Any, order: Order, seed: int) -> None:
    """Rows and reconciliation are the same, with ids repeated in other parts, invalid events, tombstones, and gaps."""
    dice = random.Random(seed)
    log = InMemoryLog(topics=("placed",), partitions=3, clock=clock)
    for _ in range(200):
        body = dice.choice([order(dice.randrange(80)), order(dice.randrange(1_000, 9_000)), b"no event", None])
        log.append(Partition("placed", "", dice.randrange(3)), body, None)
    runtime = OnLog(site.reopen(buffer_range_events=FILE_EVENTS), log)
    batch_id = listen(runtime, "orders") or ""
    for partition in log.partitions():
        start = dice.randrange(log.end(partition))
        log.lose(partition, start, start + dice.randrange(20))
    other = OnLog(site.copy(site.folder.parent / "alone").reopen(buffer_range_events=FILE_EVENTS), log)
    buffer(other, batch_id)

    parts = shared(runtime, batch_id)

    assert len(parts) > len(log.partitions())
    assert rows_of(runtime, batch_id) == rows_of(other, batch_id)
    assert reconciliation_of(runtime, batch_id) == reconciliation_of(other, batch_id)
    assert runtime.ledger.batches.get(batch_id).state == "buffered"
    other.close()


def test_the_task_lands_what_its_workers_fail_at(site: Any, order: Order) -> None:
    """The task lands the parts at which its workers fail, and keeps the earlier ones."""
    site.publish(*[order(number) for number in range(30)], key="one partition")
    runtime, batch_id = planned(site, buffer_range_events=FILE_EVENTS)

    assert len(shared(runtime, batch_id, fails_at=1)) == 1

    assert [place for _, place in positions(landed(runtime, batch_id))] == list(range(30))
    assert runtime.ledger.batches.get(batch_id).state == "buffered"


def test_workers_that_see_another_log_land_nothing_of_it(site: Any, clock: Any, order: Order) -> None:
    """If the workers' connection leads to another log, the task lands the batch."""
    log, elsewhere = (InMemoryLog(topics=("placed",), partitions=1, clock=clock) for _ in range(2))
    log.publish([(order(number), None) for number in range(20)])
    elsewhere.publish([(order(f"other {number}"), None) for number in range(20)])
    runtime = OnLog(site.reopen(buffer_range_events=FILE_EVENTS), log)
    batch_id = listen(runtime, "orders") or ""

    buffer(runtime, batch_id, lambda bus: Workers(OnLog(runtime, elsewhere), bus))

    assert [row["event_id"] for row in landed(runtime, batch_id)] == [str(number) for number in range(20)]


def test_a_bus_that_fails_on_missing_messages_fails(site: Any, clock: Any, order: Order) -> None:
    """Workers do not decide about missing messages; the task finds them and fails as without workers."""
    rules = site.folder / "rules" / "rules.yaml"
    source = "type: kafka, connection: broker, topics: [placed], offset_reset: fail"
    rules.write_text(rules.read_text().replace("type: embedded, topics: [placed], partitions: 2", source))
    log = InMemoryLog(topics=("placed",), partitions=1, clock=clock)
    log.publish([(order(number), None) for number in range(20)])
    runtime = OnLog(site.reopen(buffer_range_events=FILE_EVENTS), log)
    batch_id = listen(runtime, "orders") or ""
    log.lose(Partition("placed", "", 0), 0, 15)

    with pytest.raises(OffsetGapError, match="dropped offsets 0 to 14"):
        shared(runtime, batch_id)
    assert runtime.ledger.files.list_for_batch(batch_id, "buffer") == []


def test_a_small_batch_is_not_shared_out(site: Any, order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small batch is not shared, because that would take longer than it saves."""
    monkeypatch.setattr(sharing, "LARGE_EVENTS", 31)
    site.publish(*[order(number) for number in range(30)])
    runtime, batch_id = planned(site, buffer_range_events=FILE_EVENTS)

    assert shared(runtime, batch_id) == []
    assert len(landed(runtime, batch_id)) == 30


def test_it_may_die_anywhere(
    site: Any, order: Order, dying_everywhere: Callable[..., Iterator[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever task or worker dies, the next try ends with every message landed once, counted, the batch buffered."""
    monkeypatch.setattr(sharing, "_FILES_PER_PART", 1)
    site.publish(order(1), order(2), order(1), b"bad", order(3), key="one partition")
    _, batch_id = planned(site)

    def stage(runtime: Runtime) -> None:
        settings = runtime.settings.model_copy(update={"buffer_range_events": 2})
        shared(dataclasses.replace(runtime, settings=settings), batch_id)

    for wreck in dying_everywhere(site, stage):
        runtime = wreck.reopen()
        stage(runtime)
        rows = landed(runtime, batch_id)

        assert runtime.ledger.batches.get(batch_id).state == "buffered"
        assert [place for _, place in positions(rows)] == list(range(5))
        assert [row["status"] for row in rows] == ["valid", "valid", "duplicate", "malformed", "valid"]
        assert [sum(counts.values()) - counts["size"] for counts in reconciliation_of(runtime, batch_id).values()] == [
            10
        ]
