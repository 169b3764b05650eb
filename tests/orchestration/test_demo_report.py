"""The demo's report shows every loss."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from demo.progress import targets_that_take_all
from demo.receipts import compare, duplicates, read_record
from demo.tally import Tally
from demo.target_states import target_lines, unexpected_states

from eventbridge.model.rule_state import TargetStatus
from eventbridge.rules import RuleSet
from eventbridge.rules.load import load_rules

ROOT = Path(__file__).parents[2]


def test_the_demo_waits_for_every_target_that_accepts_deliveries() -> None:
    """Healthy, slow and flaky targets and files must get all deliveries, those of /bad, /gone and /hang not."""
    rules = load_rules(ROOT / "include" / "rules")
    waited_for = {f"{rule}/{target}" for rule, target in targets_that_take_all(rules)}
    every = {f"{rule.name}/{target}" for rule in rules.enabled().values() for target in rule.targets}

    assert every - waited_for == {
        "unknown-registrations/registry",
        "pacific-codeshares/partner",
        "diversions/desk",
    }


@pytest.fixture
def rules(tmp_path: Path) -> RuleSet:
    """Return a rule with an http and a file target."""
    text = """
buses: {b: {source: {type: embedded}}}
rules:
  r:
    bus: b
    pattern: {}
    targets:
      web: {type: http, url: "http://127.0.0.1:1/healthy/r", allow_http: true}
      log: {type: file, path: log.jsonl}
"""
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "r.yaml").write_text(text)
    return load_rules(folder)


def record(tmp_path: Path, *requests: tuple[str, int | None]) -> Path:
    """Write a receiver's record of (webhook-id, status)."""
    path = tmp_path / "received.jsonl"
    lines = [{"at": "", "path": "/healthy/r", "webhook_id": name, "status": status} for name, status in requests]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_the_receivers_record_is_compared_id_by_id(rules: RuleSet, tmp_path: Path) -> None:
    """A missing or an extra delivery is reported; a refusal, no response or a duplicate is not."""
    (tmp_path / "log.jsonl").write_text("{}\n{}\n")
    requests = [("a", 503), ("a", 200), ("a", 200), ("b", None), ("c", 200)]
    seen = read_record(record(tmp_path, *requests))
    right = {("r", "web"): Tally(delivered={"a", "c"}), ("r", "log"): Tally(delivered={"a", "c"})}
    lost = {("r", "web"): Tally(delivered={"a", "b", "c"}), ("r", "log"): Tally(delivered={"a", "b", "c"})}
    extra = {("r", "web"): Tally(delivered={"a"}), ("r", "log"): Tally(delivered={"a"})}

    few, many = dict(compare(rules, lost, seen, tmp_path)), dict(compare(rules, extra, seen, tmp_path))

    assert dict(compare(rules, right, seen, tmp_path)) == {"r/web": "", "r/log": ""}
    assert few["r/web"] == "1 delivered according to the reconciliation, but not accepted by the receiver, such as b"
    assert few["r/log"].startswith("3 delivered, 2 lines")
    assert many["r/web"] == "1 accepted by the receiver, but not delivered according to the reconciliation, such as c"
    assert many["r/log"].startswith("1 delivered, 2 lines")
    assert duplicates(seen) == 1


def test_the_final_states_of_targets_are_printed_and_compared() -> None:
    """The target that hangs is degraded, the flaky one ok, the one with 410 disabled; with few deliveries any state
    is accepted."""
    rules = load_rules(ROOT / "include" / "rules")
    at = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    desk, rebooking, partner = [
        TargetStatus(*key, state, reason, at)
        for key, state, reason in (
            (("diversions", "desk"), "degraded", "16 of 16 attempts failed within 30 s"),
            (("missed-connections", "rebooking"), "ok", ""),
            (("pacific-codeshares", "partner"), "disabled", "the target responded with 410"),
        )
    ]
    right = {(each.rule, each.target): each for each in (desk, rebooking, partner)}
    wrong = {("missed-connections", "rebooking"): replace(rebooking, state="degraded", reason="slow")}
    matched = {"diversions/desk": 139, "missed-connections/rebooking": 449, "pacific-codeshares/partner": 189}

    lines = list(target_lines(rules, right))

    assert "diversions/desk: degraded since 12:00:00 UTC, 16 of 16 attempts failed within 30 s" in lines
    assert lines[-1] == f"{len(targets_that_take_all(rules)) + 1} others: ok"
    assert list(unexpected_states(rules, right, matched)) == []
    assert sorted(unexpected_states(rules, wrong, matched)) == [
        "diversions/desk is ok after 139 deliveries; expected degraded",
        "missed-connections/rebooking is degraded (slow) after 449 deliveries; expected ok",
        "pacific-codeshares/partner is ok after 189 deliveries; expected disabled",
    ]
    assert list(unexpected_states(rules, {}, {"diversions/desk": 5})) == []


def test_quantiles_of_measured_times() -> None:
    """The median and the 99th percentile of 100 times; None without times."""
    many = Tally(seconds=[float(number) for number in range(100, 0, -1)])

    assert (many.quantile(0.5), many.quantile(0.99), Tally().quantile(0.5)) == (51.0, 100.0, None)
