"""Costly rules have a budget: what does not fit is routed later, in the slow lane, and the books hold throughout."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from eventbridge.errors import BooksError, SparkError, UserError
from eventbridge.ledger.records import Reference
from eventbridge.rule import RuleSet, Transform
from eventbridge.stages.audit import audit
from eventbridge.stages.buffer import buffer
from eventbridge.stages.commit import commit
from eventbridge.stages.dead_letters import write_dead_letters
from eventbridge.stages.deliver import deliver_batch, deliver_references
from eventbridge.stages.listen import listen
from eventbridge.stages.records import dead_letters
from eventbridge.stages.references import due_references, plan_references
from eventbridge.stages.retries import settle_stale
from eventbridge.stages.route import RouteJob, Slice, SliceResult, route
from eventbridge.stages.route_in_process import InProcessRouter
from eventbridge.stages.route_job import RuleShare, Task
from eventbridge.stages.schedule_retries import schedule_retries
from eventbridge.stages.workplace import Workplace
from eventbridge.testing.poison import POISONED, route_with_poison

Order = Callable[..., bytes]

RULES = """
buses:
  orders:
    source: {type: embedded, topics: [placed], queues: 1, start_at: earliest}
rules:
  cheap:
    bus: orders
    pattern: {}
    targets:
      lines: {type: file, path: CHEAP}
  costly:
    bus: orders
    pattern: {data: {amount: [{numeric: [">", 5]}]}}
    ENABLED
    targets:
      lines: {type: file, path: COSTLY}
      more: {type: file, path: MORE, retry: {maximum_event_age: AGE}}
"""

#: Small budgets, so that a loop costs a test little.
BUDGETS = {"route_costly_budget_seconds": 0.2, "route_reference_budget_seconds": 0.4}


@dataclass(frozen=True)
class Costly(Workplace):
    """A workplace whose rule `costly` has transforms of the form JSONATA, with a program that a file holds."""

    def rule_set(self) -> RuleSet:
        """Return today's rules."""
        rules = super().rule_set()
        if "costly" not in rules.rules:
            return rules
        program = (self.settings.home / "program").read_text()
        rule = rules.rules["costly"]
        transform = Transform(form="JSONATA", value=program)
        targets = {name: target.model_copy(update={"transform": transform}) for name, target in rule.targets.items()}
        changed = type(rule)(**{**dict(rule), "targets": targets, "version": ""})
        return RuleSet(buses=rules.buses, rules=rules.rules | {"costly": changed})


class Place:
    """One installation with a cheap and a costly rule, and what their targets have received."""

    def __init__(self, site: Any) -> None:
        self.site = site
        self.stop = threading.Event()
        self.write_rules()
        self.program("$.id")

    def write_rules(self, enabled: bool = True, age: str = "24h", text: str = RULES) -> None:
        """Write the rule file."""
        folder = self.site.folder
        text = text.replace("ENABLED", f"enabled: {str(enabled).lower()}").replace("AGE", age)
        for name in ("CHEAP", "COSTLY", "MORE"):
            text = text.replace(name, str(folder / f"{name}.jsonl"))
        self.site.write_rules(text)

    def program(self, text: str) -> None:
        """Change the program of the costly rule's transforms."""
        (self.site.folder / "program").write_text(text)

    def work(self) -> Costly:
        """Open the installation."""
        return Costly(**vars(self.site.reopen(**BUDGETS)))

    def publish(self, order: Order, *amounts: float, poison: Sequence[int] = ()) -> None:
        """Publish an order of each amount, numbered from 0; those at the places `poison` are poisoned."""
        subjects = [POISONED if number in poison else "good" for number in range(len(amounts))]
        self.site.publish(
            *[order(number, amount, subject=subjects[number]) for number, amount in enumerate(amounts)], key="k"
        )

    def lines(self, name: str) -> list[str]:
        """Return the ids that a target has received."""
        path: Path = self.site.folder / f"{name}.jsonl"
        return [json.loads(line)["id"] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def place(site: Any) -> Place:
    """An installation with one cheap and one costly rule."""
    return Place(site)


def router(work: Workplace) -> InProcessRouter:
    """Return a router whose costly rules run programs."""
    return InProcessRouter(work.store, route_with_poison)


def landed(work: Workplace) -> str:
    """Plan and land a batch."""
    batch_id = listen(work, "orders") or ""
    buffer(work, batch_id)
    return batch_id


def settled(work: Workplace, batch_id: str) -> None:
    """Settle and commit a batch that nobody pushed."""
    write_dead_letters(work, batch_id)
    schedule_retries(work, batch_id)
    assert commit(work, batch_id)


def waiting(work: Workplace) -> list[tuple[str, str, int]]:
    """Return reason, state and number of events of the references that wait."""
    return [(each.reason, each.state, each.count) for each in work.ledger.waiting_references()]


def test_a_costly_rule_within_its_budget_is_delivered_like_any_other(place: Place, order: Order) -> None:
    """All events that its pattern lets through go to all its targets in the same batch, and nothing is referred."""
    place.publish(order, 1, 10, 20, 3, 30)
    work = place.work()

    batch_id = deliver_batch(work, "orders", router(work), place.stop)

    assert place.lines("COSTLY") == place.lines("MORE") == ["1", "2", "4"]
    assert place.lines("CHEAP") == ["0", "1", "2", "3", "4"]
    assert work.ledger.references() == []
    assert work.ledger.batch(batch_id or "").state == "committed"
    assert audit(work).differences == ()


def test_a_program_that_loops_delays_no_other_rule(place: Place, order: Order) -> None:
    """The other rules' events go out in the same batch; what the looping one did not get to is a reference."""
    place.program("loop")
    place.publish(order, *[10] * 30, poison=[12])
    work = place.work()

    began = time.process_time()
    deliver_batch(work, "orders", router(work), place.stop)
    took = time.process_time() - began

    assert place.lines("CHEAP") == [str(number) for number in range(30)]
    assert place.lines("COSTLY") == [str(number) for number in range(12)]
    assert waiting(work) == [("Budget", "due", 18)]
    assert took < 5
    assert audit(work).differences == ()


def test_a_rule_that_is_behind_costs_the_others_one_budget_once(place: Place, order: Order) -> None:
    """While references of a rule wait, its next shares are referred unseen, and its events keep their order."""
    place.program("loop")
    place.publish(order, 10, 10, poison=[0])
    work = place.work()
    deliver_batch(work, "orders", router(work), place.stop)
    place.publish(order, 10, 10, 10)

    class Asked(InProcessRouter):
        tasks: list[Task]

        def route_slices(self, job: RouteJob, tasks: Sequence[Task]) -> Iterator[SliceResult]:
            self.tasks = [*getattr(self, "tasks", []), *tasks]
            return super().route_slices(job, tasks)

    asked = Asked(work.store, route_with_poison)
    deliver_batch(work, "orders", asked, place.stop)

    assert all(isinstance(task, Slice) for task in asked.tasks)
    assert waiting(work) == [("Budget", "due", 2), ("Behind", "due", 3)]
    assert audit(work).differences == ()


def test_references_are_routed_in_the_slow_lane_until_none_is_left(place: Place, order: Order, clock: Any) -> None:
    """An event that takes a whole budget by itself fails, as TransformFailed; all others are delivered, in order."""
    place.program("loop")
    place.publish(order, *[10] * 8, poison=[2, 5])
    work = place.work()

    deliver_batch(work, "orders", router(work), place.stop)
    batches = 0
    while (due_at := due_references(work)) is not None:
        clock.now = max(clock.now, due_at)
        deliver_references(work, "orders", router(work), place.stop)
        batches += 1

    assert batches == 4
    assert place.lines("COSTLY") == place.lines("MORE") == ["0", "1", "3", "4", "6", "7"]
    assert waiting(work) == []
    records = sorted((row["event_id"], row["target"], row["reason"]) for row in dead_letters(work))
    assert records == [(number, target, "TransformFailed") for number in "25" for target in ("lines", "more")]
    chunks = [chunk for batch in work.ledger.batches(limit=None) for chunk in work.ledger.chunks(batch.batch_id)]
    kinds = {batch.batch_id: batch.kind for batch in work.ledger.batches(limit=None)}
    assert {chunk.pool for chunk in chunks if kinds[chunk.batch_id] == "retry"} == {"lane.slow"}
    books = audit(work)
    assert books.differences == ()
    assert books.deliveries["costly/lines"] == {"matched": 8, "delivered": 6, "dead": 2, "parked": 0}


def test_a_program_that_fails_is_a_dead_letter_like_any_other(place: Place, order: Order) -> None:
    """A transform that fails for an event fails for it alone."""
    place.program("fail")
    place.publish(order, 10, 10, 10, poison=[1])
    work = place.work()

    deliver_batch(work, "orders", router(work), place.stop)

    assert place.lines("COSTLY") == ["0", "2"]
    assert [(row["event_id"], row["detail"]) for row in dead_letters(work)] == [("1", "it said so")] * 2


def test_a_program_that_fixes_itself_is_used_for_what_waits(place: Place, order: Order) -> None:
    """References are routed by today's rule file."""
    place.program("loop")
    place.publish(order, 10, 10, 10, poison=[0])
    work = place.work()
    deliver_batch(work, "orders", router(work), place.stop)
    place.program("$.id")

    deliver_references(work, "orders", router(work), place.stop)

    assert place.lines("COSTLY") == ["0", "1", "2"]
    assert waiting(work) == []
    assert audit(work).differences == ()


class Crashing(InProcessRouter):
    """A router whose worker dies of every share of the rule `costly`, until it is mended."""

    def __init__(self, work: Workplace) -> None:
        super().__init__(work.store, route_with_poison)
        self.mended = False
        self.shares = 0

    def route_slices(self, job: RouteJob, tasks: Sequence[Task]) -> Iterator[SliceResult]:
        if any(isinstance(task, RuleShare) for task in tasks) and not self.mended:
            self.shares += 1
            raise SparkError("the worker exited unexpectedly")
        return super().route_slices(job, tasks)


def test_a_rule_that_cannot_be_routed_is_held(place: Place, order: Order) -> None:
    """Its worker dies: after two tries alone the rule is held, its events wait, all others go on; its file mends it."""
    place.publish(order, 10, 10)
    work = place.work()
    crashing = Crashing(work)
    deliver_batch(work, "orders", crashing, place.stop)
    place.publish(order, 10, 10, 10)
    deliver_batch(work, "orders", crashing, place.stop)

    assert crashing.shares == 2
    assert place.lines("CHEAP") == ["0", "1", "0", "1", "2"]
    assert "the worker exited unexpectedly" in work.ledger.held_rules()["costly"].reason
    assert waiting(work) == [("RouteFailed", "held", 2), ("Held", "held", 3)]
    assert plan_references(work) is None
    assert audit(work).differences == ()
    place.program("$.id again")
    crashing.mended = True
    deliver_references(work, "orders", crashing, place.stop)

    assert place.lines("COSTLY") == ["0", "1", "0", "1", "2"]
    assert waiting(work) == []
    assert audit(work).differences == ()


class Killing(Crashing):
    """A router whose Spark ends with every share of the rule `costly`; the next job finds it started anew."""

    dead = False

    def route_slices(self, job: RouteJob, tasks: Sequence[Task]) -> Iterator[SliceResult]:
        if self.dead:
            self.dead = False
            raise SparkError("Spark does not answer")
        self.dead = any(isinstance(task, RuleShare) for task in tasks)
        return super().route_slices(job, tasks)


def test_a_rule_that_ends_spark_itself_is_held(place: Place, order: Order) -> None:
    """Three times Spark was there before its share was tried, and was not after: the rule is held, the rest goes on."""
    place.publish(order, 10, 10)
    work = place.work()
    killing = Killing(work)
    for _ in range(3):
        with pytest.raises(SparkError):
            deliver_batch(work, "orders", killing, place.stop)
        assert work.ledger.held_rules() == {}

    deliver_batch(work, "orders", killing, place.stop)

    assert killing.shares == 3
    assert place.lines("CHEAP") == ["0", "1"]
    assert "the Spark that had been there" in work.ledger.held_rules()["costly"].reason
    assert waiting(work) == [("RouteFailed", "held", 2)]
    assert audit(work).differences == ()


def test_references_that_end_spark_hold_their_rule_over_several_batches(place: Place, order: Order, clock: Any) -> None:
    """A batch that took them up is abandoned with its run; the tries it counted go on counting in the next one."""
    place.program("loop")
    place.publish(order, 10, 10, poison=[0])
    work = place.work()
    deliver_batch(work, "orders", router(work), place.stop)
    killing = Killing(work)
    for _ in range(3):
        clock.now = max(clock.now, due_references(work) or clock.now)
        with pytest.raises(SparkError):
            deliver_references(work, "orders", killing, place.stop)
        clock.advance(60 + 30 + 1)
        settle_stale(work)
    clock.advance(600)

    deliver_references(work, "orders", killing, place.stop)

    assert killing.shares == 3
    assert waiting(work) == [("RouteFailed", "held", 2)]
    assert audit(work).differences == ()


def test_what_is_too_old_ends_as_a_dead_letter(place: Place, order: Order, clock: Any) -> None:
    """References past the longest maximum age of the rule's targets are given up unseen, whole and by name."""
    place.program("loop")
    place.publish(order, 10, 10, 10, poison=[0])
    work = place.work()
    deliver_batch(work, "orders", router(work), place.stop)
    clock.advance(24 * 3600 + 1)

    deliver_references(work, "orders", router(work), place.stop)

    records = [(row["event_id"], row["target"], row["reason"]) for row in dead_letters(work, whole=True)]
    assert records == [(number, target, "MaximumEventAge") for target in ("lines", "more") for number in "012"]
    assert waiting(work) == []
    assert audit(work).differences == ()


def test_a_disabled_rules_references_wait_and_do_not_age(place: Place, order: Order, clock: Any) -> None:
    """They are held while the rule is disabled; that time is not counted when it is enabled again."""
    place.program("loop")
    place.publish(order, 10, 10, poison=[0])
    work = place.work()
    deliver_batch(work, "orders", router(work), place.stop)
    place.write_rules(enabled=False)
    assert plan_references(work) is None
    assert waiting(work) == [("Budget", "held", 2)]
    clock.advance(48 * 3600)
    assert plan_references(work) is None
    place.write_rules()
    place.program("$.id")

    deliver_references(work, "orders", router(work), place.stop)

    assert place.lines("COSTLY") == ["0", "1"]


def test_a_removed_rules_references_are_given_up_after_an_hour(place: Place, order: Order, clock: Any) -> None:
    """For an hour they wait for the rule to come back, then they are dead letters RuleRemoved."""
    place.program("loop")
    place.publish(order, 10, 10, poison=[0])
    work = place.work()
    deliver_batch(work, "orders", router(work), place.stop)
    place.write_rules(text=RULES[: RULES.index("  costly:")])
    assert plan_references(work) is None
    clock.advance(3599)
    assert plan_references(work) is None
    clock.advance(2)

    deliver_references(work, "orders", router(work), place.stop)

    assert [row["reason"] for row in dead_letters(work)] == ["RuleRemoved"] * 4
    assert waiting(work) == []
    assert audit(work).differences == ()


def test_references_taken_up_by_a_run_that_died_come_back(place: Place, order: Order, clock: Any) -> None:
    """A batch that was planned and never routed is settled by the next run; its references are references again."""
    place.program("loop")
    place.publish(order, 10, 10, poison=[0])
    work = place.work()
    deliver_batch(work, "orders", router(work), place.stop)
    lost = plan_references(work) or ""
    assert plan_references(work) is None
    clock.advance(60 + 30 + 1)

    assert settle_stale(work) == [lost]

    assert waiting(work) == [("Abandoned", "due", 2)]
    assert work.ledger.waiting_references()[0].tries == 1
    assert audit(work).differences == ()


def test_a_rule_that_gets_nowhere_waits_longer_each_time(place: Place, order: Order, clock: Any) -> None:
    """Each batch that comes to nothing but an event that took its whole budget doubles the wait."""
    place.program("loop")
    place.publish(order, *[10] * 4, poison=range(4))
    work = place.work()
    deliver_batch(work, "orders", router(work), place.stop)
    waits = []
    for _ in range(3):
        due_at = due_references(work)
        assert due_at is not None
        clock.now = due_at
        deliver_references(work, "orders", router(work), place.stop)
        waits.append((due_references(work, "orders") or clock()) - clock())

    assert [wait.total_seconds() for wait in waits] == [2, 4, 8]


def test_books_without_one_referred_event_do_not_balance(place: Place, order: Order) -> None:
    """A reference that does not name all that was left stops the commit."""
    place.program("loop")
    place.publish(order, 10, 10, 10, poison=[0])
    work = place.work()
    batch_id = landed(work)

    class Forgetful(Costly):
        pass

    genuine = work.ledger.publish_chunks

    def forget(batch: str, deadline: Any, chunks: Any, references: Sequence[Reference] = ()) -> bool:
        from dataclasses import replace

        return genuine(
            batch, deadline, chunks, [replace(each, files=((each.files[0][0], "0-1"),)) for each in references]
        )

    work.ledger.publish_chunks = forget  # type: ignore[method-assign]
    route(work, batch_id, router(work))
    write_dead_letters(work, batch_id)
    schedule_retries(work, batch_id)

    with pytest.raises(BooksError, match="costly: survivors = routed"):
        commit(work, batch_id)


def test_route_of_a_costly_rule_may_die_anywhere(
    place: Place, order: Order, dying_everywhere: Callable[..., Iterator[Any]]
) -> None:
    """Wherever route dies, the next try ends with every event of the costly rule routed or referred, once."""
    place.program("loop")
    place.publish(order, 10, 10, 10, 1, poison=[1])
    batch_id = landed(place.work())
    place.site.environ["EVENTBRIDGE_ROUTE_COSTLY_BUDGET_SECONDS"] = "0.02"

    def stage(work: Workplace) -> None:
        costly = Costly(**vars(work))
        route(costly, batch_id, router(costly))

    for wreck in dying_everywhere(place.site, stage):
        work = wreck.reopen(route_costly_budget_seconds=0.02)
        stage(work)
        assert waiting(work) == [("Budget", "due", 2)]
        settled(work, batch_id)
        assert audit(work).differences == ()


def test_a_rule_with_sql_is_refused_without_spark(site: Any, order: Order) -> None:
    """The router of this process cannot evaluate `where`: it says so, and what to do, and records nothing."""
    site.write_rules(RULES[: RULES.index("  costly:")].replace("pattern: {}", "pattern: {}\n    where: 'true'"))
    site.publish(order(0, 10), key="k")
    work = site.reopen()
    batch_id = landed(work)

    with pytest.raises(UserError, match=r"rule cheap has `where` .* only Spark .* `eventbridge deliver`"):
        route(work, batch_id, InProcessRouter(work.store))
    assert work.ledger.batch(batch_id).state == "buffered"
