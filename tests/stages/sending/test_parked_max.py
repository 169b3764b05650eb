"""A rule of which as many deliveries wait as may: what it matches of later batches waits as references."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stages.delivering import REFUSED, RunningClock, Sending, rules

from eventbridge.stages.operate.audit import audit
from eventbridge.stages.operate.say import operate
from eventbridge.stages.retry.deferred import plan_references
from eventbridge.stages.route.costly_rules import BEHIND, PARKED_MAX


def write(sending: Sending, log: Path, crm: str) -> None:
    """Write a rule of which three deliveries may wait, and one that writes every order to a file."""
    other = f"  others: {{bus: orders, pattern: {{}}, targets: {{log: {{type: file, path: '{log}'}}}}}}\n"
    sending.write(rules({"crm": crm}, parked="{max: 3}") + other)


def waiting(sending: Sending) -> dict[str, int]:
    """Return how many events wait as references, by reason."""
    return {each.reason: each.count for each in sending.work.ledger.waiting_references()}


@pytest.fixture
def full(sending: Sending, tmp_path: Path) -> Path:
    """Five orders more than the rule may park, whose target refuses; returns the file of the other rule."""
    log = tmp_path / "log.jsonl"
    write(sending, log, REFUSED)
    sending.publish(3)
    sending.deliver_batch()
    assert sending.work.ledger.parked_by_rule() == {"orders": 3}
    sending.publish(5)
    sending.deliver_batch()
    return log


def test_a_full_rules_shares_wait_as_references(sending: Sending, full: Path) -> None:
    """No more is parked, the other rule goes on, and the books balance."""
    assert waiting(sending) == {PARKED_MAX: 5}
    assert sending.work.ledger.parked_by_rule() == {"orders": 3}
    assert len(full.read_text().splitlines()) == 8
    assert audit(sending.work).differences == ()


def test_references_are_taken_up_once_less_waits(sending: Sending, clock: RunningClock, full: Path) -> None:
    """Each order comes once: first what was parked, then what waited, then what came behind it."""
    mended = full.with_name("crm.jsonl")
    write(sending, full, f"{{type: file, path: '{mended}'}}")
    clock.advance(3600)
    assert plan_references(sending.work) is None, "as many wait as may"
    sending.retry()
    assert sending.work.ledger.parked_by_rule().get("orders", 0) < 3
    sending.publish(1)
    sending.deliver_batch()
    assert waiting(sending) == {PARKED_MAX: 5, BEHIND: 1}

    for _ in range(3):  # the target was refused, and so it heals by probes
        clock.advance(3600)
        sending.deliver()

    got = [int(json.loads(line)["data"]["id"]) for line in mended.read_text().splitlines()]
    assert sorted(got) == list(range(1, 10))
    assert got[0] <= 3, "what was parked comes first"
    assert [number for number in got if number > 3][-1] == 9, "what came behind comes last"
    assert waiting(sending) == {}
    assert audit(sending.work).differences == ()


def test_what_a_full_rule_refers_is_given_up_at_its_age(sending: Sending, clock: RunningClock, full: Path) -> None:
    """While what is parked is held, references are not, and end as dead letters; the rule stays full."""
    operate(sending.work, "pause target", "orders", "crm")
    assert sending.retry() is None
    clock.advance(86_400 + 60)

    sending.deliver()

    assert waiting(sending) == {}
    assert sending.work.ledger.parked_by_rule() == {"orders": 3}
    assert audit(sending.work).differences == ()
    assert sending.requests() == []
