"""Retention removes files past their retention from store, ledger and bus, keeps needed ones, and all is reconciled."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pipeline.delivering import REFUSED, Sending, http
from stored import dead_letters

from eventbridge.control.backtest import BacktestRequest, backtest_rules
from eventbridge.control.consecutive_batches import cancel_replay, deliver_redrive, deliver_replay
from eventbridge.dead_letters.reader import select_dead_letters
from eventbridge.dead_letters.redrive_plan import begin_redrive
from eventbridge.dead_letters.redrives import Marks
from eventbridge.dead_letters.selection import Selection
from eventbridge.errors import LedgerLostError, NotFoundError, UserError
from eventbridge.event.ids import new_batch_id
from eventbridge.model.batch import Batch
from eventbridge.repair.audit import Audit, audit
from eventbridge.repair.repair import repair_batch
from eventbridge.replay.account import account_of
from eventbridge.replay.plan import begin_replay, build_replay, plan_replay, record_replay
from eventbridge.replay.request import WrittenReplayRequest
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.identity import refuse_lost_ledger
from eventbridge.store import layout
from eventbridge.upkeep.maintain import maintain
from eventbridge.upkeep.run import Maintained

NO_RETRY = "{policy: custom, max_retries: 0}"
TARGETS = {"crm": "/healthy/crm", "dead": http(REFUSED, retry=NO_RETRY)}


def days(sending: Sending, count: float) -> None:
    """Advance the clock by some days."""
    sending.site.clock.advance(count * 86_400)


def delivered(sending: Sending, orders: int = 2, **targets: str) -> Batch:
    """Deliver orders to the targets, by default one that takes them and one that refuses; return their batch."""
    sending.begin(orders, **(targets or TARGETS))
    sending.deliver()
    return next(batch for batch in sending.runtime.ledger.batches.find(limit=None) if batch.kind == "normal")


def files(sending: Sending, batch: Batch) -> dict[str, int]:
    """Return how many files of a batch the store holds, by the folder they are in."""
    found: dict[str, int] = {}
    for path in sending.runtime.store.list(""):
        if batch.batch_id in path:
            found[path.partition("/")[0]] = found.get(path.partition("/")[0], 0) + 1
    return found


def sound(sending: Sending) -> Audit:
    """Return an audit of everything, after checking that it has no difference."""
    found = audit(sending.runtime)
    assert found.differences == ()
    return found


def kept(sending: Sending, batch: Batch) -> str:
    """Return what is kept of a batch."""
    return sending.runtime.ledger.batches.get(batch.batch_id).kept


def replay_of(sending: Sending, run: str = "run", **options: Any) -> str:
    """Begin a replay and return its id."""
    runtime = sending.runtime
    chosen = {"since": "90d", "until": None} | options
    return begin_replay(
        runtime, WrittenReplayRequest("orders", **chosen).read(runtime.ledger.now(), runtime.rule_set()), run
    ).replay_id


def test_each_kind_of_record_goes_at_its_time(sending: Sending) -> None:
    """Deliveries and archive after 30 days, dead letters after 90, the manifest after 400, and everything is
    reconciled.
    """
    first = delivered(sending)
    days(sending, 1)
    delivered(sending)
    events = sound(sending).events

    days(sending, 28)
    assert maintain(sending.runtime).batches == {}
    days(sending, 1.5)
    assert maintain(sending.runtime).batches == {"all": 1, "archive": 1}
    assert files(sending, first) == {"dead_letters": 1, "manifests": 1}
    assert (sound(sending).pruned, sound(sending).events) == (1, events)
    days(sending, 60)
    done = maintain(sending.runtime)
    assert (done.batches["dead_letters"], done.finished) == (1, True)
    assert files(sending, first) == {"manifests": 1}
    assert len(list(dead_letters(sending.runtime))) == 2, "the dead letters of the younger batch"
    assert sound(sending).events == events
    days(sending, 310)
    maintain(sending.runtime)
    assert files(sending, first) == {}
    with pytest.raises(NotFoundError):
        sending.runtime.ledger.batches.get(first.batch_id)
    assert sound(sending).batches == 1, "the newest stays: offsets and the guard against a lost ledger rest on it"
    assert maintain(sending.runtime).rows == 0


def test_an_empty_ledger_never_looks_like_a_first_start(sending: Sending) -> None:
    """After years without events a new ledger is refused, and so is an old copy; retention itself stops at once."""
    delivered(sending)
    days(sending, 1)
    last = delivered(sending)
    days(sending, 2_000)
    maintain(sending.runtime)

    assert files(sending, last) == {"manifests": 1}
    lost = sending.site.reopen(ledger_url=f"sqlite:///{sending.site.folder}/other.sqlite")
    with pytest.raises(LedgerLostError):
        refuse_lost_ledger(lost, always=True)
    with pytest.raises(LedgerLostError):
        maintain(lost)


def test_a_dry_run_reports_and_changes_nothing(sending: Sending) -> None:
    """It counts what a real run then removes."""
    delivered(sending)
    days(sending, 1)
    delivered(sending)
    days(sending, 100)
    before = sending.runtime.store.list("")

    reported = maintain(sending.runtime, dry_run=True)

    assert (sending.runtime.store.list(""), reported.batches["all"], reported.batches["dead_letters"]) == (before, 2, 2)
    done = maintain(sending.runtime)
    assert (done.batches, done.files) == (reported.batches, reported.files)


def test_a_pending_delivery_keeps_the_files_of_its_earlier_batches(sending: Sending) -> None:
    """A delivery that is tried for days, in two batches, keeps its files until the batch that delivered it is old as
    well.
    """
    policy = (
        "{policy: custom, max_retries: 50, initial_delay: 1h, multiplier: 1, max_delay: 1h, maximum_event_age: 20d}"
    )
    first = delivered(sending, crm=http(REFUSED, retry=policy))
    sending.site.reopen(retention_deliveries="2d")
    days(sending, 3)
    sending.deliver()  # a second batch takes it up, and makes it pending again
    days(sending, 3)

    reported = maintain(sending.runtime)

    assert kept(sending, first) == "all"
    assert reported.kept == {
        "it has pending deliveries or deferred matches": 1,
        "a later batch that is kept took some of its rows": 1,
    }
    sound(sending)
    sending.rules(crm=http("/healthy/crm", retry=policy))
    sending.deliver()
    assert len(sending.requests()) == 2
    maintain(sending.runtime)
    assert kept(sending, first) == "all", "the batch that delivered it is young"
    sound(sending)
    days(sending, 3)
    maintain(sending.runtime)
    assert kept(sending, first) == "archive"
    assert sound(sending).pruned == 3


def test_a_replay_that_has_not_ended_keeps_its_archive(sending: Sending) -> None:
    """Running or paused, whatever its age; once it has ended the archive goes, and a request for it is refused."""
    first = delivered(sending)
    days(sending, 20)
    request = replay_of(sending)
    by_outcome = replay_of(sending, "other", skip_delivered=True)
    days(sending, 20)

    reported = maintain(sending.runtime)
    assert kept(sending, first) == "all"
    assert reported.kept == {f"replay {by_outcome} has not ended": 1}
    cancel_replay(sending.runtime, by_outcome)
    maintain(sending.runtime)
    assert kept(sending, first) == "archive"
    with pytest.raises(UserError, match="the outcomes of deliveries up to"):
        replay_of(sending, "again", skip_delivered=True)
    cancel_replay(sending.runtime, request)
    maintain(sending.runtime)
    assert kept(sending, first) == "dead_letters"
    with pytest.raises(UserError, match="is past its retention and was removed"):
        replay_of(sending, "late")
    with pytest.raises(UserError, match="is past its retention"):
        repair_batch(sending.runtime, first.batch_id, InProcessRouter(sending.runtime.store), dry_run=True)
    with pytest.raises(UserError, match="is past its retention and was removed"):
        backtest_rules(sending.runtime, "orders", BacktestRequest("90d"), InProcessRouter(sending.runtime.store))
    sound(sending)


def test_a_replay_whose_archive_goes_while_it_is_asked_for_is_refused(sending: Sending) -> None:
    """Retention took it after the asker had looked, before the replay was recorded: no replay of the rest begins."""
    delivered(sending)
    days(sending, 40)
    runtime = sending.runtime
    request = WrittenReplayRequest("orders", since="90d").read(runtime.ledger.now(), runtime.rule_set())
    made = build_replay(runtime, request, "run", runtime.ledger.now())
    maintain(runtime)

    with pytest.raises(UserError, match="is past its retention and was removed"):
        record_replay(runtime, request, made)
    assert runtime.ledger.replays.get(made.replay_id).state == "cancelled"


def redrive(sending: Sending, run: str, *, again: bool = False) -> int:
    """Redrive every dead letter to the end; return how many batches that took."""
    begun = begin_redrive(sending.runtime, Selection(), run, rate=None, retransform=False, again=again)
    return deliver_redrive(sending.runtime, begun.redrive_id, InProcessRouter(sending.runtime.store))


def test_dead_letters_outlive_their_batch_and_can_be_redriven(sending: Sending) -> None:
    """They are delivered by what they hold themselves, and stay as long as a batch that took them is whole."""
    first = delivered(sending)
    days(sending, 40)
    maintain(sending.runtime)
    sending.rules(crm="/healthy/crm", dead="/healthy/fixed")

    assert redrive(sending, "first") == 1
    sound(sending)
    days(sending, 40)
    maintain(sending.runtime)
    marks = Marks(sending.runtime)
    assert {mark.outcome for each in select_dead_letters(sending.runtime) if (mark := marks.mark(each))} == {"pruned"}
    assert redrive(sending, "not again") == 0
    assert redrive(sending, "again", again=True) == 1
    days(sending, 15)
    reported = maintain(sending.runtime)
    assert kept(sending, first) == "dead_letters"
    assert reported.kept["a later batch that is kept took its dead letters"] == 1
    sound(sending)
    days(sending, 20)
    maintain(sending.runtime)
    assert kept(sending, first) == "manifest"
    assert list(select_dead_letters(sending.runtime)) == []
    sound(sending)


def test_a_redrive_in_progress_keeps_every_dead_letter(sending: Sending) -> None:
    """It may take any of them; once it is cancelled they go."""
    first = delivered(sending)
    days(sending, 89)
    begun = begin_redrive(sending.runtime, Selection(), "run", rate=None, retransform=False, again=False)
    days(sending, 10)

    maintain(sending.runtime)
    assert kept(sending, first) == "dead_letters"
    sending.runtime.ledger.redrives.end(begun.redrive_id, "cancelled")
    maintain(sending.runtime)
    assert kept(sending, first) == "manifest"


def test_the_result_of_a_replay_is_reported_as_long_as_it_is_kept(sending: Sending) -> None:
    """Its batches are pruned as others are; its account says so, and in the end it is forgotten."""
    delivered(sending)
    sending.site.clock.advance(1)
    request = replay_of(sending)
    deliver_replay(sending.runtime, request, InProcessRouter(sending.runtime.store))
    days(sending, 50)
    maintain(sending.runtime)

    account = account_of(sending.runtime, sending.runtime.ledger.replays.get(request))
    assert (account.taken, account.outcomes) == (2, {"pruned": 2})
    sound(sending)
    days(sending, 400)
    assert maintain(sending.runtime).requests == 1
    with pytest.raises(NotFoundError):
        sending.runtime.ledger.replays.get(request)
    sound(sending)


def test_unreferenced_files_are_removed(sending: Sending) -> None:
    """Lost files, of a known batch or of none, go once the day is 24 hours past."""
    first = delivered(sending)
    store, never = sending.runtime.store, new_batch_id(first.planned_at)
    lost = [
        layout.deliveries(first.planned_at, first.batch_id, "dead", "0"),
        layout.outcomes(first.planned_at, first.batch_id, 7, 7, 7),
        layout.buffer("orders", first.planned_at, never, "0"),
    ]
    for path in lost:
        store.put(path, b"lost")

    days(sending, 0.9)
    assert maintain(sending.runtime).lost_files == 0
    days(sending, 1.1)
    delivered(sending)
    other = new_batch_id(first.planned_at)
    foreign = [layout.settlement(first.planned_at, other), layout.manifest(first.planned_at, other)]
    for path in foreign:
        store.put(path, b"of another ledger, which an audit reports")
    whole = {path for path in store.list("") if not path.startswith("index/")} - set(lost)

    assert maintain(sending.runtime).lost_files == 3
    assert [path for path in whole if not store.exists(path)] == [], "the others stay, or are compacted"
    assert [path for path in lost if store.exists(path)] == []
    assert maintain(sending.runtime).lost_files == 0, "a day is listed once"


def test_a_file_set_aside_by_a_repair_stays(sending: Sending) -> None:
    """Its record names the damaged file, which is in the store as long as the record is."""
    batch = delivered(sending)
    (dead_letter,) = (file.path for file in sending.runtime.ledger.files.list_for_batch(batch.batch_id, "dead_letter"))
    assert dead_letter is not None
    sending.runtime.store.put(dead_letter, b"damaged")
    repair_batch(sending.runtime, batch.batch_id, InProcessRouter(sending.runtime.store), dry_run=False)
    blocking_call = layout.deliveries(batch.planned_at, batch.batch_id, "old", "0")
    sending.runtime.store.put(blocking_call, b"set aside")

    days(sending, 3)

    assert maintain(sending.runtime).lost_files == 0
    assert sending.runtime.store.exists(blocking_call)


def test_a_run_ends_when_its_time_is_over_and_the_next_continues(sending: Sending) -> None:
    """With no time at all each run does one piece of work, and in the end all is done."""
    batches = []
    for _ in range(3):
        batches.append(delivered(sending, 1, crm="/healthy/crm"))
        days(sending, 1)
    days(sending, 40)

    runs: list[Maintained] = []
    while not runs or not runs[-1].finished:
        runs.append(maintain(sending.runtime, budget=timedelta(0)))

    assert 2 < len(runs) < 100
    assert {run.batches["all"] for run in runs} == {0, 1}
    assert {kept(sending, batch) for batch in batches} == {"dead_letters"}
    sound(sending)


def test_a_bus_loses_what_is_old_and_was_taken(sending: Sending) -> None:
    """Not what a runner has not taken, though no rule names it any more; offsets stay where they are."""
    delivered(sending, 4, crm="/healthy/crm")
    offsets = sending.runtime.ledger.offsets.find()
    sending.remove()  # nothing is taken from now on
    sending.publish(2)
    days(sending, 40)

    assert maintain(sending.runtime).messages == {"orders": 4}
    with sending.site.bus() as bus:
        assert sum(bus.end(partition) - bus.earliest(partition) for partition in bus.partitions()) == 2
    assert sending.runtime.ledger.offsets.find() == offsets
    sending.rules(crm="/healthy/crm")
    sending.deliver()
    assert len(sending.requests()) == 6
    sound(sending)


def test_a_cancelled_replay_is_no_difference_once_its_archive_is_removed(sending: Sending) -> None:
    """The file that it had come to is pruned, and what came after it is not: an audit asks no more of it."""
    delivered(sending, 2, crm="/healthy/crm")
    days(sending, 10)
    delivered(sending, 2, crm="/healthy/crm")
    sending.site.clock.advance(1)
    request = replay_of(sending, rate=0.1)  # an event a batch: it ends in the first file
    assert plan_replay(sending.runtime, request).batch_id is not None
    cancel_replay(sending.runtime, request)
    days(sending, 25)
    sending.deliver()

    maintain(sending.runtime)

    sound(sending)
