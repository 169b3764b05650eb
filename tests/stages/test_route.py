from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from eventbridge import rowset
from eventbridge.errors import InfrastructureError, SparkError
from eventbridge.flow import PoolSlots
from eventbridge.identity import Fingerprint, delivery_id
from eventbridge.stages import route as route_module
from eventbridge.stages.buffer import buffer
from eventbridge.stages.listen import listen
from eventbridge.stages.route import RouteJob, Slice, SliceResult, route, slices_of
from eventbridge.stages.route_in_process import InProcessRouter
from eventbridge.stages.workplace import Workplace
from eventbridge.store.parquet import read_rows, read_table

Order = Callable[..., bytes]


def buffered(site: Any, **settings: Any) -> tuple[Workplace, str]:
    """Plan and land a batch over everything published."""
    work: Workplace = site.reopen(**settings)
    batch_id = listen(work, "orders") or ""
    buffer(work, batch_id)
    return work, batch_id


def routed(work: Workplace, batch_id: str, **options: Any) -> list[int]:
    return route(work, batch_id, InProcessRouter(work.store), **options)


def deliveries(work: Workplace, batch_id: str) -> list[dict[str, Any]]:
    """Return the rows of all recorded delivery files."""
    rows: list[dict[str, Any]] = []
    for file in work.ledger.files(batch_id, "delivery"):
        if file.path is not None:
            rows += read_table(work.store, file.path).to_pylist()
    return rows


def wanted(rows: list[dict[str, Any]]) -> Counter[tuple[str, str, str]]:
    return Counter((row["rule"], row["target"], row["event_id"]) for row in rows)


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut slices of two rows, so that a batch of a few events has several."""
    monkeypatch.setattr(route_module, "ROW_GROUP_ROWS", 2)


def test_every_match_is_one_delivery(site: Any, clock: Any, order: Order) -> None:
    """Each event is delivered once per target of each rule that matches it, and to no other."""
    site.publish(order(1, 500), order(2, 50), order(3, 101))
    clock.advance(5)
    work, batch_id = buffered(site)

    routed(work, batch_id)

    assert wanted(deliveries(work, batch_id)) == Counter(
        [("big", target, number) for target in ("crm", "note") for number in ("1", "3")]
        + [("everything", "archive", number) for number in ("1", "2", "3")]
    )


def test_a_delivery_says_where_it_comes_from(site: Any, clock: Any, order: Order) -> None:
    """A row has the stable id, rule and version, the event's place, times, and what the target gets."""
    site.publish(order(1, 500))
    published_at = clock()
    clock.advance(5)
    work, batch_id = buffered(site)
    (event_file,) = (file.path for file in work.ledger.files(batch_id, "buffer"))

    routed(work, batch_id)

    row = next(row for row in deliveries(work, batch_id) if row["target"] == "note")
    place = {name: row[name] for name in ("bus", "topic", "broker", "queue_id", "offset", "source", "event_id")}
    assert row["delivery_id"] == delivery_id("orders", "/shop", "1", "big", "note")
    assert row["rule_version"] == work.rule_set().rules["big"].version
    assert place == {
        "bus": "orders",
        "topic": "placed",
        "broker": "",
        "queue_id": 0,
        "offset": 0,
        "source": "/shop",
        "event_id": "1",
    }
    assert (row["published_at"], row["arrived_at"]) == (published_at, clock())
    assert (row["event_file"], row["event_row"]) == (event_file, 0)
    assert json.loads(row["payload"]) == {"order": "1"}
    assert (row["failure"], row["order_key"], row["not_before"]) == (None, None, None)


def test_the_row_of_the_event_is_the_row_in_its_file(site: Any, order: Order) -> None:
    """Malformed and duplicate rows are counted, so that event_row finds the event's own bytes."""
    site.publish(b"bad", order(1), order(1), order(2), key="one queue")
    work, batch_id = buffered(site)

    routed(work, batch_id)

    rows = deliveries(work, batch_id)
    assert [(row["event_id"], row["event_row"]) for row in rows] == [("1", 1), ("2", 3)]
    for row in rows:
        event = read_rows(work.store, row["event_file"], str(row["event_row"])).to_pylist()[0]
        assert event["event_id"] == row["event_id"]


def test_a_failed_transform_is_a_row_without_payload(site: Any, order: Order) -> None:
    """The failure stands in the delivery file, in no chunk, and holds up nothing else."""
    site.publish(order(1, 500, data={"amount": 500}), order(2, 500), key="one queue")
    work, batch_id = buffered(site)

    routed(work, batch_id)

    failed = [row for row in deliveries(work, batch_id) if row["failure"] is not None]
    (file,) = work.ledger.files(batch_id, "delivery")
    assert [(row["rule"], row["target"], row["event_id"], row["payload"]) for row in failed] == [
        ("big", "note", "1", None)
    ]
    assert "$.data.id" in failed[0]["failure"]
    assert file.detail["failed"] == {"big/note": 1}
    rows = read_rows(work.store, file.path or "", file.detail["failed_rows"]).to_pylist()
    assert [row["delivery_id"] for row in rows] == [row["delivery_id"] for row in failed]
    in_chunks = [
        row for chunk in work.ledger.chunks(batch_id) for piece in chunk.pieces for row in rowset.decode(piece.rows)
    ]
    assert sorted(in_chunks) == [row for row in range(6) if row not in set(rowset.decode(file.detail["failed_rows"]))]


def test_the_manifest_of_a_slice_adds_up(site: Any, order: Order) -> None:
    """Valid rows in, and per target the fingerprint of all its deliveries, failed ones included."""
    site.publish(order(1, 500, data={"amount": 500}), order(2, 500), order(2, 500), order(3, 1), key="one queue")
    work, batch_id = buffered(site)

    routed(work, batch_id)

    (file,) = work.ledger.files(batch_id, "delivery")
    detail = file.detail
    rows = deliveries(work, batch_id)
    expected = {
        f"{rule}/{target}": Fingerprint.of(
            row["delivery_id"] for row in rows if (row["rule"], row["target"]) == (rule, target)
        ).as_list()
        for rule, target in {(row["rule"], row["target"]) for row in rows}
    }
    assert (detail["rows_in"], detail["reference_matched"], file.rows) == (3, 3, len(rows))
    assert detail["slice"] == {"file": work.ledger.files(batch_id, "buffer")[0].path, "row_from": 0, "row_to": 4}
    assert detail["matched"] == expected
    assert [value[0] for value in detail["matched"].values()] == [2, 2, 3]


def test_rows_are_sorted_and_pieces_are_runs(site: Any, order: Order) -> None:
    """A delivery file is sorted by pool, rule, target and offset; what a chunk takes of it lies together."""
    site.publish(*[order(number, 50 * number) for number in range(6)], key="one queue")
    work, batch_id = buffered(site, chunk_max_deliveries=2)

    routed(work, batch_id)

    rows = deliveries(work, batch_id)
    rules = work.rule_set().rules
    order_of_rows = [(rules[row["rule"]].pool_name, row["rule"], row["target"], row["offset"]) for row in rows]
    (file,) = work.ledger.files(batch_id, "delivery")
    assert order_of_rows == sorted(order_of_rows)
    assert [piece[:6] for piece in file.detail["pieces"]] == [
        ["rules.high", 750, "big", "crm", "0-1", 2],
        ["rules.high", 750, "big", "crm", "2", 1],
        ["rules.high", 750, "big", "note", "3-4", 2],
        ["rules.high", 750, "big", "note", "5", 1],
        ["rules.medium", 500, "everything", "archive", "6-7", 2],
        ["rules.medium", 500, "everything", "archive", "8-9", 2],
        ["rules.medium", 500, "everything", "archive", "10-11", 2],
    ]
    sizes = [sum(len(rows[row]["payload"]) for row in rowset.decode(piece[4])) for piece in file.detail["pieces"]]
    assert [piece[6] for piece in file.detail["pieces"]] == sizes


def test_a_piece_holds_a_bounded_number_of_bytes(site: Any, order: Order) -> None:
    """Pieces are cut by payload bytes too; one payload larger than a chunk is a piece of its own."""
    site.publish(*[order(n, filler="x" * size) for n, size in enumerate((400, 400, 3_000, 400))], key="one queue")
    work, batch_id = buffered(site, chunk_max_bytes="1200")

    routed(work, batch_id)

    (file,) = work.ledger.files(batch_id, "delivery")
    assert [piece[4] for piece in file.detail["pieces"]] == ["0-1", "2", "3"]


def test_a_chunk_follows_the_order_of_the_bus(site: Any, order: Order, small_slices: None) -> None:
    """The pieces of a target lie in its chunks by queue and offset, whichever slice was finished first."""
    site.publish(*[order(number) for number in range(20)])

    class Backwards:
        def route_slices(self, job: RouteJob, slices: Sequence[Slice]) -> Iterator[SliceResult]:
            return InProcessRouter(work.store).route_slices(job, slices[::-1])

    work, batch_id = buffered(site)
    route(work, batch_id, Backwards())

    (chunk,) = work.ledger.chunks(batch_id)
    offsets = [
        (row["queue_id"], row["offset"])
        for piece in chunk.pieces
        for row in read_rows(work.store, piece.file, piece.rows).to_pylist()
    ]
    assert offsets == [(queue, offset) for queue in range(2) for offset in range(10)]


def test_chunks_are_published_with_a_deadline(site: Any, clock: Any, order: Order) -> None:
    """Route returns the chunks to push in map index order; the batch has its deadline from then on."""
    site.publish(*[order(number, 500) for number in range(4)])
    work, batch_id = buffered(site, batch_max_chunks=1)
    clock.advance(3)

    handed_out = routed(work, batch_id)

    batch = work.ledger.batch(batch_id)
    chunks = work.ledger.chunks(batch_id)
    assert (batch.state, batch.deadline_at) == ("routed", clock() + timedelta(seconds=60))
    assert handed_out == [0]
    assert [(c.chunk_id, c.pool, c.weight, c.rows, c.handed_out, c.map_index, c.state) for c in chunks] == [
        (0, "rules.high", 750, 8, True, 0, "NEW"),
        (1, "rules.medium", 500, 4, False, None, "NEW"),
    ]
    pieces = [piece for chunk in chunks for piece in chunk.pieces]
    assert sum(piece.count for piece in pieces) == 12
    assert {(piece.attempts, piece.lineage, piece.parked_id) for piece in pieces} == {(0, (), None)}


def test_pools_and_targets_decide_what_is_handed_out(site: Any, order: Order) -> None:
    """A closed pool holds, a degraded target goes to the slow lane, a disabled one is held."""
    site.publish(order(1, 500))
    work, batch_id = buffered(site)
    work.ledger.set_target_status("big", "crm", "disabled", "410")
    work.ledger.set_target_status("big", "note", "degraded", "slow")

    handed_out = routed(work, batch_id, pools={"rules.medium": PoolSlots(0, 0)})

    found = {chunk.pieces[0].target: (chunk.handed_out, chunk.held) for chunk in work.ledger.chunks(batch_id)}
    assert handed_out == []
    assert found == {
        "crm": (False, "target disabled"),
        "note": (False, ""),
        "archive": (False, "pool closed"),
    }


def test_later_calls_return_the_stored_list(site: Any, clock: Any, order: Order) -> None:
    """Once routed nothing is routed again; past its deadline, or settled, a batch hands out nothing."""
    site.publish(order(1, 500))
    work, batch_id = buffered(site)
    first = routed(work, batch_id)
    files = work.ledger.files(batch_id, "delivery")

    assert routed(work, batch_id) == first == [0, 1]
    assert work.ledger.files(batch_id, "delivery") == files
    clock.advance(60)
    assert routed(work, batch_id) == []
    clock.advance(-60)
    work.ledger.begin_settlement(batch_id)
    assert routed(work, batch_id) == []


def test_a_batch_that_is_not_landed_is_left_alone(site: Any, order: Order) -> None:
    """Before the batch is buffered there is nothing to route."""
    site.publish(order(1))
    work: Workplace = site.work
    batch_id = listen(work, "orders") or ""

    assert routed(work, batch_id) == []
    assert work.ledger.batch(batch_id).state == "planned"


def test_nothing_matched_is_a_batch_without_chunks(site: Any, order: Order) -> None:
    """A batch of malformed messages alone is routed, with no file and no chunk."""
    site.publish(b"bad", b"worse")
    work, batch_id = buffered(site)

    assert routed(work, batch_id) == []
    assert work.ledger.batch(batch_id).state == "routed"
    assert [(file.path, file.rows, file.detail["rows_in"]) for file in work.ledger.files(batch_id, "delivery")] == [
        (None, 0, 0),
        (None, 0, 0),
    ]


def test_a_batch_is_routed_by_the_rules_it_was_planned_with(site: Any, order: Order) -> None:
    """A rule file that changes after listen counts from the next batch on."""
    site.publish(order(1))
    work, batch_id = buffered(site)
    site.write_rules(
        "buses: {orders: {source: {type: embedded, topics: [placed], queues: 2}}}\n"
        "rules: {later: {bus: orders, pattern: {}, targets: {f: {type: file, path: /tmp/f}}}}\n"
    )

    routed(work, batch_id)

    assert {row["rule"] for row in deliveries(work, batch_id)} == {"everything"}


def test_slices_cover_every_row_once(site: Any, order: Order, small_slices: None) -> None:
    """Slices begin at row groups, cover each file, and are the same at every try."""
    site.publish(*[order(number) for number in range(9)], key="one queue")
    work, batch_id = buffered(site, buffer_range_events=5)
    files = work.ledger.files(batch_id, "buffer")

    slices = slices_of(files)

    assert slices == slices_of(files)
    assert [(piece.row_from, piece.row_to) for piece in slices] == [(0, 4), (4, 5), (0, 4)]
    assert len({piece.slice_id for piece in slices}) == 3


class Stopping:
    """A router that fails after so many slices, and notes what it was asked for."""

    def __init__(self, work: Workplace, after: int) -> None:
        self._inner = InProcessRouter(work.store)
        self._after = after
        self.asked: list[str] = []

    def route_slices(self, job: RouteJob, slices: Sequence[Slice]) -> Iterator[SliceResult]:
        self.asked = [piece.slice_id for piece in slices]
        for number, result in enumerate(self._inner.route_slices(job, slices)):
            if number == self._after:
                raise SparkError("Spark is gone")
            yield result


def test_a_failure_keeps_the_finished_slices(site: Any, order: Order, small_slices: None) -> None:
    """Route fails loudly and commits nothing; the next try does only the slices that are missing."""
    site.publish(*[order(number, 500) for number in range(8)], key="one queue")
    work, batch_id = buffered(site)
    with pytest.raises(SparkError, match="Spark is gone"):
        route(work, batch_id, Stopping(work, after=3))
    assert work.ledger.batch(batch_id).state == "buffered"
    kept = work.ledger.files(batch_id, "delivery")
    assert len(kept) == 3

    second = Stopping(work, after=100)
    route(work, batch_id, second)

    assert len(second.asked) == 1
    assert work.ledger.files(batch_id, "delivery")[:3] == kept
    assert wanted(deliveries(work, batch_id)).total() == 24


def test_a_slice_without_an_answer_is_noticed(site: Any, order: Order, small_slices: None) -> None:
    """A router that comes back with too little does not make a batch routed."""

    class Lazy:
        def route_slices(self, job: RouteJob, slices: Sequence[Slice]) -> Iterator[SliceResult]:
            return InProcessRouter(work.store).route_slices(job, slices[1:])

    site.publish(*[order(number) for number in range(6)], key="one queue")
    work, batch_id = buffered(site)

    with pytest.raises(SparkError, match="1 of 3 slices"):
        route(work, batch_id, Lazy())
    assert work.ledger.batch(batch_id).state == "buffered"


def test_a_spent_budget_keeps_what_is_recorded(site: Any, order: Order, small_slices: None) -> None:
    """When the prepare budget is over route says so; every try records at least one slice."""
    site.publish(*[order(number) for number in range(6)], key="one queue")
    work, batch_id = buffered(site)
    start = work.clock()
    ticks = iter(range(1_000))
    slow = Workplace(
        work.settings, work.ledger, work.store, work.connections, lambda: start + timedelta(hours=next(ticks))
    )

    for tried in (1, 2):
        with pytest.raises(InfrastructureError, match="EVENTBRIDGE_PREPARE_BUDGET_SECONDS"):
            routed(slow, batch_id)
        assert len(work.ledger.files(batch_id, "delivery")) == tried
    routed(slow, batch_id)

    assert work.ledger.batch(batch_id).state == "routed"


def test_two_at_once_publish_one_batch(site: Any, order: Order, small_slices: None) -> None:
    """Two tries may both route; one file per slice is recorded and one set of chunks is published."""
    site.publish(*[order(number, 500) for number in range(10)])
    _, batch_id = buffered(site)
    works = [site.reopen() for _ in range(3)]

    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda work: routed(work, batch_id), works))

    assert answers == [[0, 1]] * 3
    rows = deliveries(site.work, batch_id)
    assert len({row["delivery_id"] for row in rows}) == len(rows) == 30
    assert sum(chunk.rows for chunk in site.work.ledger.chunks(batch_id)) == 30


def test_it_may_die_anywhere(
    site: Any, order: Order, dying_everywhere: Callable[..., Iterator[Any]], small_slices: None
) -> None:
    """Wherever route dies, the next try ends with the same deliveries, each once, and every one in one chunk."""
    site.publish(order(1, 500), order(2, 5), order(3, 500, data={"amount": 500}), b"bad", order(1, 500), key="k")
    work, batch_id = buffered(site)
    reference = site.copy(site.folder.parent / "reference")
    routed(reference.work, batch_id)
    expected = wanted(deliveries(reference.work, batch_id))
    reference.close()

    def stage(work: Workplace) -> list[int]:
        return routed(work, batch_id)

    for wreck in dying_everywhere(site, stage):
        work = wreck.reopen()
        handed_out = stage(work)
        rows = deliveries(work, batch_id)

        assert wanted(rows) == expected
        assert len({row["delivery_id"] for row in rows}) == len(rows) == 7
        assert handed_out == [0, 1]
        assert sum(chunk.rows for chunk in work.ledger.chunks(batch_id)) == 6
