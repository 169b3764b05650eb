"""A rule that moves to another runner misses no event and gets none twice, whatever its old runner is doing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pipeline.conftest import Site
from pipeline.delivering import RunningClock, Sending, http, rules

from eventbridge.errors import RuleMovedError
from eventbridge.model.batch import Batch
from eventbridge.pipeline.deliver import deliver_until_idle, push_and_settle
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.route.stage import route
from eventbridge.repair.audit import audit
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop
from eventbridge.sources.protocol import LogSource
from eventbridge.upkeep.maintain import maintain
from eventbridge.views.status import StalledRunner, status

CRM = {"crm": "/healthy/crm"}
OTHER = (
    "  other:\n    bus: orders\n    runner: {runner}\n    pattern: {{type: [order.placed]}}\n    targets:\n"
    "      log: " + http("/healthy/log").replace("{", "{{").replace("}", "}}") + "\n"
)


def both(runner: str, other: str) -> str:
    """Return a rule file with the rule `orders` and another one of the same bus, each with its runner."""
    return rules(CRM, runner=runner) + OTHER.format(runner=other)


def got(sending: Sending, target: str = "crm") -> list[str]:
    """Return the delivery ids that a target got, in order."""
    return [each["webhook_id"] for each in sending.requests() if each["path"] == f"/healthy/{target}"]


def finish(sending: Sending, batch_id: str) -> None:
    """Move a batch on to its commit."""
    runtime = sending.runtime
    buffer(runtime, batch_id)
    push_and_settle(runtime, batch_id, route(runtime, batch_id, InProcessRouter(runtime.store)), Stop())


def test_a_rule_that_leaves_an_open_batch_begins_behind_it(sending: Sending) -> None:
    """Its new runner plans nothing while the old one's batch with it is in progress; nothing of that comes twice."""
    sending.write(both("old", "old"))
    sending.publish(4)
    open_batch = listen(sending.runtime, "old")
    assert open_batch is not None
    sending.write(both("new", "old"))
    sending.publish(3)

    assert listen(sending.runtime, "new") is None
    finish(sending, open_batch)
    for runner in ("old", "new", "old", "new"):
        sending.deliver_batch(runner)

    assert len(set(got(sending))) == len(got(sending)) == 7
    assert len(set(got(sending, "log"))) == len(got(sending, "log")) == 7
    assert audit(sending.runtime).differences == ()


def in_between(monkeypatch: pytest.MonkeyPatch, sending: Sending, method: str, then: Callable[[], object]) -> list[str]:
    """Have something happen when a bus is first asked by a method; return what becomes [method] by then."""
    (bus,) = sending.runtime.rule_set().buses.values()
    source: LogSource = sending.runtime.open_source(bus)
    source.close()
    kind, real, done = type(source), getattr(type(source), method), list[str]()

    def asked(*arguments: Any) -> Any:
        if not done:
            done.append(method)
            then()
        return real(*arguments)

    monkeypatch.setattr(kind, method, asked)
    return done


def test_a_batch_that_ends_while_its_rule_is_taken_over_does_not_come_twice(
    sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old runner commits its batch with the rule while the new one asks the bus for where that stands."""
    sending.write(both("old", "old"))
    sending.publish(4)
    open_batch = listen(sending.runtime, "old")
    assert open_batch is not None
    sending.write(both("new", "old"))
    done = in_between(monkeypatch, sending, "end", lambda: finish(sending, open_batch))

    sending.deliver_batch("new")
    assert done
    sending.publish(3)
    for runner in ("new", "old", "new"):
        sending.deliver_batch(runner)

    assert len(set(got(sending))) == len(got(sending)) == 7
    assert audit(sending.runtime).differences == ()


def test_a_batch_without_a_rule_that_is_taken_over_meanwhile_passes_nothing_over(
    sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old runner continues without the rule while the new one asks the bus for its partitions."""
    sending.write(both("old", "old"))
    sending.publish(4)
    assert sending.deliver_batch("old")
    sending.write(both("new", "old"))
    sending.publish(3)
    done = in_between(monkeypatch, sending, "partitions", lambda: sending.deliver_batch("old"))

    sending.deliver_batch("new")
    assert done
    sending.publish(2)
    for runner in ("new", "old", "new"):
        sending.deliver_batch(runner)

    assert len(set(got(sending))) == len(got(sending)) == 9
    assert audit(sending.runtime).differences == ()


def test_a_rule_misses_nothing_that_its_old_runner_takes_without_it(sending: Sending) -> None:
    """The new runner may come late: it begins where the old one stood when it first continued without the rule."""
    sending.write(both("old", "old"))
    sending.publish(4)
    assert sending.deliver_batch("old")
    sending.write(both("new", "old"))
    for _ in range(2):
        sending.publish(3)
        assert sending.deliver_batch("old")

    assert sending.deliver_batch("new")

    assert len(set(got(sending))) == len(got(sending)) == 10
    assert audit(sending.runtime).differences == ()


def test_a_runner_that_is_behind_takes_the_rule_once_it_has_caught_up(sending: Sending) -> None:
    """Until then it continues without the rule, and no further: what the old runner delivered comes once."""
    sending.write(both("old", "late"))
    sending.publish(4)
    assert sending.deliver_batch("late")
    assert sending.deliver_batch("old")
    sending.publish(5)
    assert sending.deliver_batch("old")
    sending.write(both("late", "late"))
    sending.publish(2)

    while sending.deliver_batch("late"):
        pass

    assert len(set(got(sending))) == len(got(sending)) == 11
    assert len(set(got(sending, "log"))) == len(got(sending, "log")) == 11
    assert audit(sending.runtime).differences == ()


def test_the_batch_of_a_runner_without_rules_is_finished_by_the_new_one(sending: Sending) -> None:
    """No DAG runs for the old runner any more: the new one takes its batch to the end, and continues behind it."""
    sending.write(rules(CRM, runner="old"))
    sending.publish(4)
    open_batch = listen(sending.runtime, "old")
    sending.write(rules(CRM, runner="new"))
    sending.publish(3)

    assert sending.deliver_batch("new") == open_batch
    assert sending.deliver_batch("new") not in (None, open_batch)
    assert sending.deliver_batch("new") is None

    assert len(set(got(sending))) == len(got(sending)) == 7
    assert audit(sending.runtime).differences == ()


def test_a_rule_that_comes_back_to_a_runner_that_continued_is_refused(sending: Sending) -> None:
    """What the runner took without it would be missed; under a new name it misses nothing."""
    sending.write(both("old", "old"))
    sending.publish(2)
    assert sending.deliver_batch("old")
    sending.write(both("new", "old"))
    sending.publish(3)
    assert sending.deliver_batch("old")
    sending.write(both("old", "old"))

    with pytest.raises(RuleMovedError, match="3 events that the runner has taken without it") as refusal:
        listen(sending.runtime, "old")

    assert status(sending.runtime).stalled == (StalledRunner("old", str(refusal.value)),)
    sending.write(both("third", "old"))
    assert sending.deliver_batch("third")
    assert len(set(got(sending))) == len(got(sending)) == 5


def test_a_batch_is_planned_by_the_rules_that_are_in_force(sending: Sending, clock: RunningClock) -> None:
    """A runner that read its rule files before they changed plans nothing by them."""
    sending.write(rules(CRM, runner="old"))
    sending.publish(2)
    assert sending.deliver_batch("old")
    ledger = sending.runtime.ledger
    (before,) = ledger.batches.find()
    known = ledger.rules.get_in_force()
    assert known is not None
    sending.write(rules(CRM, runner="new"))
    assert listen(sending.runtime, "new") is None

    stale = Batch("late", "normal", "old", "orders", "planned", before.rule_set, planned_at=ledger.now())

    assert not ledger.batches.plan(stale, [], known.rule_set)


def test_a_rule_moved_to_a_new_runner_continues_where_the_old_one_stands(sending: Sending) -> None:
    """Though its bus starts at latest, the new runner takes what the old one had not, and nothing twice."""
    sending.write(rules(CRM, runner="old"))
    sending.publish(4)
    assert sending.deliver_batch("old")
    sending.publish(6)

    sending.write(rules(CRM, runner="new", start_at="latest"))
    assert sending.deliver_batch("new")

    requests = [request["webhook_id"] for request in sending.requests()]
    assert len(requests) == len(set(requests)) == 10


@pytest.mark.parametrize("others", ["old", "ahead"], ids=["that has other rules", "that has none"])
def test_a_runner_that_is_further_waits_until_the_old_one_has_caught_up(sending: Sending, others: str) -> None:
    """Up to where it is the old runner delivers for the rule; of one without rules the new one does that."""
    third = OTHER.replace("other:", "third:")
    sending.write(both("old", "ahead") + third.format(runner=others))
    sending.publish(4)
    assert sending.deliver_batch("old")
    sending.publish(6)
    assert sending.deliver_batch("ahead")
    sending.write(both("ahead", "ahead") + third.format(runner=others))
    sending.publish(1)

    (waits,) = status(sending.runtime).stalled
    assert waits.runner == "ahead"
    assert waits.why.startswith(
        "The rule orders comes from runner 'old', which has 6 more events to deliver for it first: this"
    )
    taken = sending.deliver_batch("ahead")
    assert (taken is None) == (others == "old")
    for runner in ("old", "ahead", "old", "ahead"):
        if runner == "ahead" or others == "old":
            sending.deliver_batch(runner)
    sending.publish(2)
    while sending.deliver_batch("ahead"):
        pass

    assert status(sending.runtime).stalled == ()
    assert sending.runtime.ledger.assignments.all()["orders", "crm"].runner == "ahead"
    assert len(set(got(sending))) == len(got(sending)) == 13
    assert audit(sending.runtime).differences == ()


def test_rules_that_two_runners_exchange_meet_where_both_have_come_to(sending: Sending) -> None:
    """Each has one partition further than the other: both go up to there, and neither misses anything or waits for
    ever.
    """
    sending.write(both("one", "two"))
    sending.publish(5)
    for runner in ("one", "two"):
        assert sending.deliver_batch(runner)
    sending.site.publish(sending.order(101), key="left")
    assert sending.deliver_batch("one")
    sending.site.publish(*(sending.order(number) for number in range(102, 110)))
    assert sending.deliver_batch("two")
    sending.write(both("two", "one"))
    sending.publish(3)

    for _ in range(4):
        for runner in ("one", "two"):
            sending.deliver_batch(runner)

    assert [len(got(sending, name)) for name in ("crm", "log")] == [17, 17]
    assert len(set(got(sending))) == len(set(got(sending, "log"))) == 17
    assert {pair[0]: was.runner for pair, was in sending.runtime.ledger.assignments.all().items()} == {
        "orders": "two",
        "other": "one",
    }
    assert audit(sending.runtime).differences == ()


@pytest.mark.parametrize("others", ["old", "ahead"], ids=["that has other rules", "that has none"])
def test_a_listen_that_dies_while_the_old_runner_catches_up_loses_and_repeats_nothing(
    sending: Sending, dying_everywhere: Callable[..., Iterator[Site]], others: str
) -> None:
    """Whichever runner's it was, and wherever it died: the next ones decide by where both stand."""
    third = OTHER.replace("other:", "third:")
    sending.write(both("old", "ahead") + third.format(runner=others))
    sending.publish(2)
    assert sending.deliver_batch("old")
    sending.publish(3)
    assert sending.deliver_batch("ahead")
    sending.write(both("ahead", "ahead") + third.format(runner=others))
    sending.publish(1)

    def go_on(runtime: Runtime, runner: str) -> None:
        deliver_until_idle(runtime, runner, InProcessRouter(runtime.store))

    def deliver_all(runtime: Runtime) -> None:
        for runner in ("ahead", "old", "ahead", "old") if others == "old" else ("ahead", "ahead"):
            go_on(runtime, runner)

    for wreck in dying_everywhere(sending.site, deliver_all, every=7):
        deliver_all(wreck.reopen())
        found = audit(wreck.runtime)
        assert found.differences == ()
        delivered = {rule: counts["delivered"] for rule, counts in found.deliveries.items()}
        assert sum(delivered.values()) == 18, delivered
        assert wreck.runtime.ledger.assignments.all()["orders", "crm"].runner == "ahead"


def test_a_runner_that_stood_still_does_not_take_a_rule_back(sending: Sending, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it asks the bus its rule moves on to a third runner, which delivers: the rule stays with that one."""
    sending.write(both("old", "old"))
    sending.publish(4)
    assert sending.deliver_batch("old")
    sending.write(both("second", "second"))
    sending.publish(3)

    def move_on() -> None:
        sending.write(both("third", "second"))
        assert sending.deliver_batch("third")

    done = in_between(monkeypatch, sending, "ends", move_on)
    listen(sending.runtime, "second")

    assert done
    assert sending.runtime.ledger.assignments.all()["orders", "crm"].runner == "third"


def test_a_rule_that_its_runner_has_again_is_not_left(sending: Sending, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt that knows it as another's notes nothing of it: the runner continues with the rule."""
    together = both("old", "old")
    sending.write(together)
    sending.publish(4)
    assert sending.deliver_batch("old")
    sending.write(both("new", "old"))
    sending.publish(3)

    def take_back() -> None:
        sending.write(together)
        assert listen(sending.runtime, "old")

    done = in_between(monkeypatch, sending, "ends", take_back)
    listen(sending.runtime, "old")
    assert done
    sending.publish(2)
    while sending.deliver_batch("old"):
        pass

    assert len(set(got(sending))) == len(got(sending)) == 9


def test_events_not_yet_read_for_a_moved_rule_stay_on_the_bus(sending: Sending, clock: RunningClock) -> None:
    """Its old runner is past it, without the rule, and its new one has not come yet: no upkeep drops that."""
    sending.write(both("old", "old"))
    sending.publish(4)
    assert sending.deliver_batch("old")
    sending.write(both("new", "old"))
    sending.publish(3)
    assert sending.deliver_batch("old")
    clock.advance(40 * 86_400)

    assert maintain(sending.runtime).messages == {"orders": 4}

    assert sending.deliver_batch("new")
    assert len(set(got(sending))) == len(got(sending)) == 7
