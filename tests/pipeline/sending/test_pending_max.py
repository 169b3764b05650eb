"""If a rule has the maximum number of pending deliveries, matches of later batches become deferred matches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pipeline.delivering import REFUSED, RUNNER, RunningClock, Sending, rules
from pipeline.ordering import Recorder, keyed, ordered, publish

from eventbridge.control.overrides import operate
from eventbridge.pipeline.deliver import deliver_deferred_matches, deliver_retries
from eventbridge.pipeline.retry.deferred import plan_deferred_matches
from eventbridge.pipeline.route.budgeted_rules import BEHIND, PENDING_MAX
from eventbridge.repair.audit import audit
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.stop import Stop
from eventbridge.views.status import status


def write(sending: Sending, log: Path, crm: str) -> None:
    """Write a rule of which three deliveries may wait, and one that writes every order to a file."""
    other = f"  others: {{bus: orders, pattern: {{}}, targets: {{log: {{type: file, path: '{log}'}}}}}}\n"
    sending.write(rules({"crm": crm}, pending="{max: 3}") + other)


def waiting(sending: Sending) -> dict[str, int]:
    """Return how many events wait as deferred matches, by reason."""
    return {each.reason: each.count for each in sending.runtime.ledger.deferred_matches.waiting()}


@pytest.fixture
def full(sending: Sending, tmp_path: Path) -> Path:
    """Five orders more than the rule may have pending, whose target refuses; returns the file of the other rule."""
    log = tmp_path / "log.jsonl"
    write(sending, log, REFUSED)
    sending.publish(3)
    sending.deliver_batch()
    assert sending.runtime.ledger.pending.counts_by_rule() == {"orders": 3}
    sending.publish(5)
    sending.deliver_batch()
    return log


def test_a_full_rules_shares_wait_as_deferred_matches(sending: Sending, full: Path) -> None:
    """No more is pending, the other rule continues, and everything is reconciled."""
    assert waiting(sending) == {PENDING_MAX: 5}
    assert sending.runtime.ledger.pending.counts_by_rule() == {"orders": 3}
    assert len(full.read_text().splitlines()) == 8
    assert audit(sending.runtime).differences == ()


def test_the_rules_of_an_owner_wait_together(sending: Sending, tmp_path: Path) -> None:
    """While the owner's `pending_max` is reached, each rule defers its matches; a rule of another owner does not."""
    logs = {name: tmp_path / f"{name}.jsonl" for name in ("theirs", "other")}
    others = "".join(
        f"  {name}: {{owner: {owner}, bus: orders, pattern: {{}}, targets: {{log: {{type: file, path: '{log}'}}}}}}\n"
        for (name, log), owner in zip(logs.items(), ("shop", "b"), strict=True)
    )
    sending.write("owners: {shop: {pending: {max: 3}}}\n" + rules({"crm": REFUSED}, owner="shop") + others)
    sending.publish(3)
    sending.deliver_batch()
    sending.publish(5)
    sending.deliver_batch()
    (owner,) = status(sending.runtime).owners

    assert {each.rule: (each.reason, each.count) for each in sending.runtime.ledger.deferred_matches.waiting()} == {
        "orders": (PENDING_MAX, 5),
        "theirs": (PENDING_MAX, 5),
    }
    assert {name: len(log.read_text().splitlines()) for name, log in logs.items()} == {"theirs": 3, "other": 8}
    assert (owner.owner, owner.pending, owner.pending_max) == ("shop", 3, 3)
    assert audit(sending.runtime).differences == ()


def test_deferred_matches_are_taken_up_once_less_waits(sending: Sending, clock: RunningClock, full: Path) -> None:
    """Each order comes once: what was pending, what waited, and what comes meanwhile."""
    fixed = full.with_name("crm.jsonl")
    write(sending, full, f"{{type: file, path: '{fixed}'}}")
    clock.advance(7200)  # an hour, and its jitter
    assert plan_deferred_matches(sending.runtime) is None, "as many wait as may"
    sending.retry()
    assert sending.runtime.ledger.pending.counts_by_rule().get("orders", 0) < 3
    sending.publish(1)
    sending.deliver_batch()
    assert waiting(sending) == {PENDING_MAX: 5}, "new events go on beside what drains"

    for _ in range(3):  # the target was refused, and so it heals by probes
        clock.advance(3600)
        sending.deliver()

    got = [int(json.loads(line)["data"]["id"]) for line in fixed.read_text().splitlines()]
    assert sorted(got) == list(range(1, 10))
    assert waiting(sending) == {}
    assert audit(sending.runtime).differences == ()


def test_deferred_matches_of_a_full_rule_are_dead_lettered_at_their_age(
    sending: Sending, clock: RunningClock, full: Path
) -> None:
    """While what is pending is on hold, deferred matches are not, and end as dead letters; the rule stays full."""
    operate(sending.runtime, "pause target", "orders", "crm")
    assert sending.retry() is None
    clock.advance(86_400 + 60)

    sending.deliver()

    assert waiting(sending) == {}
    assert sending.runtime.ledger.pending.counts_by_rule() == {"orders": 3}
    assert audit(sending.runtime).differences == ()
    assert sending.requests() == []


def test_deferred_matches_of_a_paused_rule_do_not_age(sending: Sending, clock: RunningClock, full: Path) -> None:
    """They are on hold with what is pending, and go when the rule is resumed and its target takes again."""
    operate(sending.runtime, "pause rule", "orders")
    assert plan_deferred_matches(sending.runtime) is sending.retry() is None
    clock.advance(3 * 86_400)
    assert sending.retry() is None
    fixed = full.with_name("crm.jsonl")
    write(sending, full, f"{{type: file, path: '{fixed}'}}")
    operate(sending.runtime, "resume rule", "orders")

    for _ in range(3):
        clock.advance(3600)
        sending.deliver()

    assert sorted(int(json.loads(line)["data"]["id"]) for line in fixed.read_text().splitlines()) == list(range(1, 9))


def fill_an_ordered_rule(sending: Sending, recorder: Recorder) -> None:
    """Leave three deliveries of one key pending at a target that is down, and defer the matches of three events."""
    recorder.down = True
    publish(sending, *[keyed(n, "a") for n in range(3)])
    sending.write(rules({"crm": ordered()}, pending="{max: 2}"))
    sending.deliver_batch()
    publish(sending, *[keyed(n, "a") for n in range(3, 6)])
    sending.deliver_batch()


def test_new_events_of_an_ordered_rule_come_behind_its_deferred_matches(
    sending: Sending, clock: RunningClock, recorder: Recorder
) -> None:
    """Full once, it keeps the order of a key over what was pending, what was deferred, and what came after."""
    fill_an_ordered_rule(sending, recorder)
    assert waiting(sending) == {PENDING_MAX: 3}
    recorder.down = False
    clock.advance(3600)
    sending.retry()
    publish(sending, keyed(6, "a"))
    sending.deliver_batch()
    assert BEHIND in waiting(sending) or PENDING_MAX in waiting(sending)

    for _ in range(6):
        clock.advance(3600)
        sending.deliver()

    assert recorder.got["a"] == list(range(7))
    assert audit(sending.runtime).differences == ()


def test_deferred_matches_of_another_runner_come_first_too(
    sending: Sending, clock: RunningClock, recorder: Recorder
) -> None:
    """An ordered rule that moved while deferred matches wait is not stuck between them and what is pending."""
    fill_an_ordered_rule(sending, recorder)
    sending.write(rules({"crm": ordered()}, pending="{max: 2}", runner="other"))
    publish(sending, *[keyed(n, "a") for n in range(6, 9)])
    sending.deliver_batch("other")
    recorder.down = False

    runtime, router, stop = sending.runtime, InProcessRouter(sending.runtime.store), Stop()
    for _ in range(12):
        clock.advance(600)
        for runner in (RUNNER, "other"):
            deliver_retries(runtime, runner, stop)
            deliver_deferred_matches(runtime, runner, router, stop)

    assert recorder.got["a"] == list(range(9))
    assert audit(sending.runtime).differences == ()
