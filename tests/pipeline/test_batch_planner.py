"""Each step of planning a batch works on its own, and the rounds of planning are limited."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta

import pytest
from pipeline.conftest import Site

from eventbridge.errors import InfrastructureError, NotFoundError
from eventbridge.model.batch import Range
from eventbridge.model.partition import Partition
from eventbridge.pipeline.ingest.listen import (
    Again,
    Consumer,
    Done,
    PlanRequest,
    Registered,
    RunnerRules,
    finish_open,
    listen,
    plan_events,
    publish,
    register,
    settle_consumers,
    take_up,
)
from eventbridge.rules import Bus
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.protocol import LogSource

Q0, Q1 = Partition("placed", "", 0), Partition("placed", "", 1)
REQUEST = PlanRequest("orders")
RULE = """
  {name}:
    bus: orders
    runner: {runner}
    pattern: {{}}
    targets:
      {target}: {{type: file, path: /tmp/never-written/{name}.jsonl}}
"""
BUS = "buses:\n  orders:\n    source: {type: embedded, topics: [placed], partitions: 2, start_at: earliest}\nrules:"


def rules(**runners: str) -> str:
    """Return a rule file with rules of the bus `orders`, by name and runner."""
    return BUS + "".join(RULE.format(name=name, runner=runner, target="log") for name, runner in runners.items())


def taken_up(runtime: Runtime, runner: str = "orders") -> RunnerRules:
    """Return the rules that a runner takes up."""
    own = take_up(runtime, runner)
    assert isinstance(own, RunnerRules)
    return own


@contextmanager
def asking(runtime: Runtime, own: RunnerRules) -> Iterator[LogSource]:
    """Open the bus of a runner's rules."""
    with closing(runtime.open_source(own.bus)) as source:
        yield source


def registered(runtime: Runtime, own: RunnerRules, source: LogSource, runner: str = "orders") -> Registered:
    """Return a runner as registered."""
    found = register(runtime, runner, own, source)
    assert isinstance(found, Registered)
    return found


def settled(runtime: Runtime, own: RunnerRules, source: LogSource) -> Consumer:
    """Return the runner `orders` as registered consumer of its rules."""
    found = settle_consumers(runtime, REQUEST, own, registered(runtime, own, source), source)
    assert isinstance(found, Consumer)
    return found


def test_only_an_unfinished_batch_ends_the_first_step(
    runtime: Runtime, site: Site, order: Callable[..., bytes]
) -> None:
    """Planning continues only for a runner without an unfinished batch; otherwise that batch is returned."""
    assert finish_open(runtime, REQUEST) is None
    site.publish(order(1))
    batch_id = listen(runtime, "orders")

    assert finish_open(runtime, REQUEST) == Done(batch_id)


def test_the_first_step_leaves_a_runner_to_the_holder_of_its_lease(runtime: Runtime) -> None:
    """Only the holder of a runner's lease continues to plan; other processes get no batch."""
    runtime.ledger.streaming.acquire_lease("orders", "task", runtime.ledger.now() + timedelta(seconds=60))

    assert finish_open(runtime, REQUEST) == Done(None)
    assert finish_open(runtime, PlanRequest("orders", "task")) is None


def test_todays_rules_of_a_runner_are_taken_up_and_in_force(site: Site) -> None:
    """A runner takes up only its own rules; a runner without rules is unknown."""
    site.write_rules(rules(first="orders", second="another"))

    own = taken_up(site.runtime)

    assert list(own.rules.rules) == ["first"]
    assert (own.bus.name, own.moved) == ("orders", [])
    known = site.runtime.ledger.rules.get_in_force()
    assert known is not None
    assert known.rule_set == own.taken.rule_set
    with pytest.raises(NotFoundError):
        take_up(site.runtime, "third")


def test_a_runner_is_registered_once(site: Site, order: Callable[..., bytes]) -> None:
    """The first round registers a runner according to `start_at`; later rounds find its offsets."""
    runtime, own = site.runtime, taken_up(site.runtime)
    site.publish(order(1), order(2))
    with asking(runtime, own) as source:
        first, second = (registered(runtime, own, source) for _ in range(2))

    assert first == Registered({Q0: 0, Q1: 0}, True, [])
    assert second == Registered({Q0: 0, Q1: 0}, False, [])


def test_the_consumer_of_each_rule_is_recorded(site: Site) -> None:
    """From then on the ledger names the runner as the one that delivers for its rules."""
    runtime, own = site.runtime, taken_up(site.runtime)
    with asking(runtime, own) as source:
        consumer = settled(runtime, own, source)

    assert (consumer.offsets, consumer.until, consumer.transfers) == ({Q0: 0, Q1: 0}, {}, False)
    assert {each.runner for each in runtime.ledger.assignments.all().values()} == {"orders"}


def test_rules_that_changed_since_are_settled_in_another_round(site: Site) -> None:
    """A runner does not become the consumer of rules that are no longer in force."""
    runtime, own = site.runtime, taken_up(site.runtime)
    with asking(runtime, own) as source:
        found = registered(runtime, own, source)
        site.write_rules(rules(first="orders"))
        taken_up(site.reopen())

        assert settle_consumers(runtime, REQUEST, own, found, source) == Again(REQUEST)
    assert runtime.ledger.assignments.all() == {}


def test_a_runner_without_rules_that_is_behind_is_planned_for_first(site: Site, order: Callable[..., bytes]) -> None:
    """A runner without rules that is behind is planned for first, because no other run would plan its batch."""
    site.write_rules(rules(first="old", second="ahead"))
    runtime = site.runtime
    for runner in ("old", "ahead"):
        own = taken_up(runtime, runner)
        with asking(runtime, own) as source:
            settle_consumers(runtime, PlanRequest(runner), own, registered(runtime, own, source, runner), source)
    site.publish(order(1), order(2))
    site.write_rules(rules(first="ahead", second="ahead"))
    own = taken_up(runtime, "ahead")
    with asking(runtime, own) as source:
        ahead = registered(runtime, own, source, "ahead")._replace(offsets={Q0: 1, Q1: 1})

        assert settle_consumers(runtime, PlanRequest("ahead"), own, ahead, source) == Again(PlanRequest("old"))


def test_ranges_reach_from_the_offsets_to_what_the_bus_holds(site: Site, order: Callable[..., bytes]) -> None:
    """Ranges end at the last offset of the bus, or where another runner's rules wait."""
    runtime, own = site.runtime, taken_up(site.runtime)
    site.publish(*(order(number) for number in range(6)))
    with asking(runtime, own) as source:
        consumer = settled(runtime, own, source)
        plan = plan_events(runtime, REQUEST, own.bus, consumer, source)
        bounded = plan_events(runtime, REQUEST, own.bus, consumer._replace(until={Q1: 1}), source)

    assert plan is not None
    assert bounded is not None
    assert (plan.ranges, plan.is_full, plan.state) == ([Range(Q0, 0, 3), Range(Q1, 0, 3)], False, "planned")
    assert bounded.ranges == [Range(Q0, 0, 3), Range(Q1, 0, 1)]


def test_the_holder_of_the_lease_gets_an_open_batch(site: Site, order: Callable[..., bytes]) -> None:
    """It begins at the offsets and has no events yet; while rules move between runners its end must be known."""
    runtime, own = site.runtime, taken_up(site.runtime)
    request = PlanRequest("orders", "task")
    site.publish(order(1), order(2))
    with asking(runtime, own) as source:
        consumer = settled(runtime, own, source)
        plan = plan_events(runtime, request, own.bus, consumer, source)
        transferred = plan_events(runtime, request, own.bus, consumer._replace(transfers=True), source)

    assert plan is not None
    assert transferred is not None
    assert (plan.ranges, plan.state) == ([Range(Q0, 0, 0), Range(Q1, 0, 0)], "open")
    assert (transferred.ranges, transferred.state) == ([Range(Q0, 0, 1), Range(Q1, 0, 1)], "planned")


def test_of_two_batches_that_are_published_the_first_one_counts(site: Site, order: Callable[..., bytes]) -> None:
    """If two processes publish a batch, the second plans again and finds the first one's batch."""
    runtime, own = site.runtime, taken_up(site.runtime)
    site.publish(order(1))
    with asking(runtime, own) as source:
        consumer = settled(runtime, own, source)
        plan = plan_events(runtime, REQUEST, own.bus, consumer, source)
    assert plan is not None

    first, second = (publish(runtime, REQUEST, own, consumer.rules, plan) for _ in range(2))

    assert second == Again(REQUEST)
    assert [Done(batch.batch_id) for batch in runtime.ledger.batches.find()] == [first]


def test_rules_that_change_in_every_round_end_it(
    site: Site, monkeypatch: pytest.MonkeyPatch, order: Callable[..., bytes]
) -> None:
    """If two processes read different rule files, the error says so; the next listen plans what waits."""
    runtime, versions = site.runtime, iter(range(1_000))
    site.publish(order(1))
    opened: Callable[[Runtime, Bus], LogSource] = type(runtime).open_source

    def rules_change(self: Runtime, bus: Bus) -> LogSource:
        text = BUS + RULE.format(name="first", runner="orders", target=f"log-{next(versions)}")
        site.write_rules(text)
        taken_up(other)
        return opened(self, bus)

    other = site.reopen()
    monkeypatch.setattr(type(runtime), "open_source", rules_change)
    with pytest.raises(InfrastructureError, match="another process put other rules in force"):
        listen(runtime, "orders")
    monkeypatch.undo()

    assert runtime.ledger.batches.find() == []
    assert listen(runtime, "orders") is not None
