"""A backtest runs a candidate over the archive only, and compares two candidates in one pass."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pipeline import budgeted

from eventbridge.backtest import run as run_module
from eventbridge.backtest import run as spans_module
from eventbridge.backtest.report import BacktestReport, DiffReport, Hour, Peak
from eventbridge.control.backtest import BacktestRequest, backtest_rules, diff_rules, keep_report
from eventbridge.errors import NotFoundError, RuleFileError, UserError
from eventbridge.model.backtested import Failure
from eventbridge.routing.job import BacktestSlice, RouteJob, SliceResult, Task
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.runtime import Runtime

Order = Callable[..., bytes]

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

#: The rule `big` with a lower bound, and with another output for one of its targets.
LOWER = """
rules:
  big:
    bus: orders
    pattern: {type: [order.placed], data: {amount: [{numeric: [">", 50]}]}}
    targets:
      crm: {type: file, path: /tmp/never-written/crm.jsonl}
      note:
        type: file
        path: /tmp/never-written/note.jsonl
        transform: {form: TEMPLATE, value: {id: $.data.id}, template: '{"number": "${id}"}'}
"""


class Counting(InProcessRouter):
    """A router that records its jobs."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime.store)
        self.asked: list[Task] = []

    def route_slices(self, job: RouteJob, tasks: Sequence[Task]) -> Iterator[SliceResult]:
        self.asked += tasks
        return super().route_slices(job, tasks)


def land(site: Any, settle: Callable[[Runtime, str], None], *bodies: bytes) -> None:
    """Land events and commit their batch."""
    site.publish(*bodies)
    settle(site.runtime, budgeted.landed(site.runtime))


@pytest.fixture
def archive(site: Any, order: Order, settle_by_ledger: Callable[[Runtime, str], None]) -> Any:
    """Provide an archive of six orders in two hours; one of them has no id in its data."""
    land(site, settle_by_ledger, order(0, 10), order(1, 120), order(2, 70, data={"amount": 300}))
    site.clock.advance(90)
    land(site, settle_by_ledger, order(3, 110), order(4, 60))
    site.clock.advance(3600)
    land(site, settle_by_ledger, order(5, 130), b"no event")
    site.clock.advance(60)
    return site


def backtest(site: Any, candidate: str, since: str = "2026-03-01T12:00:00", **fields: Any) -> BacktestReport:
    """Backtest in this process."""
    return backtest_rules(
        site.runtime, candidate, BacktestRequest(since, **fields), InProcessRouter(site.runtime.store), paths=True
    )


def diff(site: Any, a: str, b: str, **fields: Any) -> DiffReport:
    """Compare in this process."""
    request = BacktestRequest("2026-03-01T12:00:00", **fields)
    return diff_rules(site.runtime, a, b, request, InProcessRouter(site.runtime.store), paths=True)


def written(site: Any, text: str, name: str = "candidate.yaml") -> str:
    """Write a rule file that no folder of rule files holds; return its path."""
    path: Path = site.folder / name
    path.write_text(text)
    return str(path)


def test_a_rule_is_counted_by_hour_and_minute(archive: Any) -> None:
    """All archived events are read; matches, rate, busiest minute, hours, failures and samples are reported."""
    report = backtest(archive, "big")

    (rule,) = report.rules
    note, crm = rule.targets[1], rule.targets[0]
    assert (report.bus, report.events, rule.matched, rule.left_out) == ("orders", 6, 4, 0)
    assert rule.largest_minute == Peak(NOON, 2)
    assert rule.hours == (Hour(NOON, 5, 3), Hour(NOON.replace(hour=13), 1, 1))
    assert rule.rate_per_second == pytest.approx(4 / 3750)
    assert (crm.target, crm.rendered, crm.failed, crm.failures) == ("crm", 4, 0, ())
    assert (note.target, note.rendered, note.failed) == ("note", 3, 1)
    assert note.failures == (Failure("${id}: the event has no $.data.id", 1, ("2",)),)
    assert {each.of.event_id: each.output.payload for each in note.samples if each.output.payload}.items() <= {
        "1": '{"order": "1"}',
        "3": '{"order": "3"}',
        "5": '{"order": "5"}',
    }.items()
    assert len(crm.samples) == 3
    assert [json.loads(each.output.payload or "") == json.loads(each.of.event) for each in crm.samples] == [True] * 3


def test_half_a_surrogate_pair_in_what_an_output_names_is_a_failure(
    site: Any, order: Order, settle_by_ledger: Callable[[Runtime, str], None]
) -> None:
    """Half a surrogate pair in an output's text is a failure; a complete pair and half of one elsewhere are not."""
    texts = ["plain", '"\n', "\N{ROCKET}", "\ud83d", "\udc00 \udbff"]
    bodies = [order(number, data={"note": text}) for number, text in enumerate(texts)]
    land(site, settle_by_ledger, *bodies, order(5, data={"note": "other", "unnamed": "\ud83d"}))
    site.clock.advance(60)
    lower = LOWER.replace('type: [order.placed], data: {amount: [{numeric: [">", 50]}]}', "type: [order.placed]")
    report = backtest(
        site, written(site, lower.replace("$.data.id", "$.data.note").replace('{"number": "${id}"}', "a note: ${id}"))
    )

    note = next(each for each in report.rules[0].targets if each.target == "note")
    assert (note.rendered, note.failed) == (4, 2)
    assert [each.event_ids for each in note.failures] == [("3",), ("4",)]


def test_only_the_first_job_renders_samples_of_what_matches_often(
    archive: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later jobs learn which targets have enough samples; the report is the same."""
    whole = backtest(archive, "everything", samples=2)
    monkeypatch.setattr(spans_module, "_MAX_ROWS", 1)
    monkeypatch.setattr(run_module, "_FIRST_ROWS", 1)
    monkeypatch.setattr(run_module, "_JOB_ROWS", 1)
    router = Counting(archive.runtime)
    request = BacktestRequest("2026-03-01T12:00:00", samples=2)
    cut = backtest_rules(archive.runtime, "everything", request, router)

    assert (cut.rules, cut.events) == (whole.rules, 6)
    sampled = [task.sampled[0] for task in router.asked if isinstance(task, BacktestSlice)]
    assert sampled[0] == ()
    assert sampled[-1] == ("everything/archive",)


def test_only_the_requested_time_is_read(archive: Any) -> None:
    """The range applies to the times at which batches were planned; its end is excluded."""
    report = backtest(archive, "everything", "2026-03-01T12:01:00", until="2026-03-01T13:01:00")

    assert (report.events, report.rules[0].matched) == (2, 2)


def test_a_disabled_rule_is_run_and_the_version_is_its_own(archive: Any) -> None:
    """A backtest before a rule is enabled shows what it will do."""
    (rule,) = backtest(archive, "sleeping").rules

    assert (rule.matched, rule.version) == (6, archive.runtime.rule_files().rules["sleeping"].version)


def test_every_rule_of_a_file_is_run(archive: Any) -> None:
    """The file may be in any folder, and the current rule files define its bus."""
    report = backtest(archive, written(archive, LOWER))

    assert [(rule.rule, rule.matched) for rule in report.rules] == [("big", 5)]


def test_nothing_is_delivered_planned_or_left(archive: Any) -> None:
    """The store gains only a frozen rule set, the ledger no batch."""
    before = set(archive.runtime.store.list(""))
    batches = archive.runtime.ledger.batches.find()

    backtest(archive, written(archive, LOWER))

    assert {path.partition("/")[0] for path in {*archive.runtime.store.list("")} - before} == {"rulesets"}
    assert archive.runtime.ledger.batches.find() == batches


def test_an_archive_of_nothing_is_reported_as_such(site: Any) -> None:
    """An archive without events is not an error, and Spark is not called."""
    router = Counting(site.runtime)

    report = backtest_rules(site.runtime, "big", BacktestRequest("2h"), router)

    assert (report.events, report.rules[0].matched, report.rules[0].largest_minute) == (0, 0, None)
    assert router.asked == []


@pytest.mark.parametrize(
    ("candidate", "since", "said"),
    [
        ("bigg", "1h", "Did you mean big?"),
        ("big@123", "1h", "no batch was planned with"),
        ("nowhere.yaml", "1h", "the file cannot be read"),
        ("big", "soon", "from 'soon' is not a time"),
        ("big", "", "from is missing"),
        (" ", "1h", "no candidate given"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(site: Any, candidate: str, since: str, said: str) -> None:
    """An invalid request is rejected before Spark is called, with a remedy."""
    router = Counting(site.runtime)

    with pytest.raises((UserError, NotFoundError, RuleFileError)) as failure:
        backtest_rules(site.runtime, candidate, BacktestRequest(since), router, paths=True)

    assert said in str(failure.value)
    assert router.asked == []


def test_errors_of_a_candidate_are_reported_as_those_of_rule_files(site: Any) -> None:
    """All errors of a candidate have a file, line, column, path and remedy."""
    wrong = written(site, "rules:\n  one:\n    bus: order\n    pattern: {}\n    targets: {a: {type: fil}}\n")

    with pytest.raises(RuleFileError) as failure:
        backtest(site, wrong, "1h")

    reported = [(error.line, error.path) for error in failure.value.errors]
    assert reported == [(3, "$.rules.one.bus"), (5, "$.rules.one.targets.a.type")]


def test_two_rules_are_compared(archive: Any) -> None:
    """The report has what B gains and loses, and different outputs of events that both match, with samples."""
    report = diff(archive, "big", written(archive, LOWER))

    (pair,) = report.pairs
    crm, note = pair.targets
    assert (report.events, pair.both, pair.gained, pair.lost) == (6, 4, 1, 0)
    assert [sample.event_id for sample in pair.gained_samples] == ["4"]
    assert (crm.target, crm.changed) == ("crm", 0)
    assert (note.target, note.changed) == ("note", 4)
    change = {each.of.event_id: (each.a, each.b) for each in note.samples}
    assert len(change) == 3
    if "1" in change:
        assert [each.payload for each in change["1"]] == ['{"order": "1"}', '{"number": "1"}']


def test_a_failure_in_only_one_version_is_a_change(archive: Any) -> None:
    """A failure in only one version is a changed output."""
    report = diff(archive, "big", written(archive, LOWER), samples=100)

    (found,) = [each for each in report.pairs[0].targets[1].samples if each.of.event_id == "2"]
    assert (found.a.failure, found.b.payload) == ("${id}: the event has no $.data.id", '{"number": ""}')


def test_a_rule_compared_with_itself_does_not_differ(archive: Any) -> None:
    """Nothing is gained, lost or changed."""
    (pair,) = diff(archive, "big", "big").pairs

    assert (pair.both, pair.gained, pair.lost) == (4, 0, 0)
    assert [each.changed for each in pair.targets] == [0, 0]


def test_rules_of_two_names_are_compared_if_there_are_no_others(archive: Any) -> None:
    """Two differently named rules are compared if they are the only ones; targets of only one are named."""
    (pair,) = diff(archive, "everything", "big").pairs

    assert (pair.a, pair.b, pair.both, pair.gained, pair.lost) == ("everything", "big", 4, 0, 2)
    assert [(each.target, each.only_in) for each in pair.targets] == [("archive", "A"), ("crm", "B"), ("note", "B")]


def test_rules_of_two_files_are_compared_by_name(archive: Any) -> None:
    """Rules are compared by name, and those without a counterpart are named."""
    two = written(archive, LOWER.replace("rules:", "rules:\n  more: {bus: orders, pattern: {}, targets: T}").replace(
        "T}", "{x: {type: file, path: /tmp/never-written/x.jsonl}}}"), "two.yaml")  # fmt: skip

    report = diff(archive, two, str(archive.folder / "rules" / "rules.yaml"))

    assert [(pair.a, pair.b) for pair in report.pairs] == [("big", "big")]
    assert (report.only_in_a, report.only_in_b) == (("more",), ("everything", "nothing", "sleeping"))


@pytest.fixture
def expensive_site(
    budgeted_site: budgeted.BudgetedSite, order: Order, settle_by_ledger: Callable[[Runtime, str], None]
) -> budgeted.BudgetedSite:
    """An archive of four orders, the third one poisoned, three of them for the budgeted rule."""
    budgeted_site.publish(order, 1, 6, 7, 8, poison=[2])
    runtime = budgeted_site.runtime()
    settle_by_ledger(runtime, budgeted.landed(runtime))
    budgeted_site.site.clock.advance(1)
    return budgeted_site


def test_a_budgeted_rule_is_run_within_its_budget(expensive_site: budgeted.BudgetedSite) -> None:
    """Its events are rendered one by one, counted as all others, and nothing of it stays in the store."""
    expensive_site.program("fail")
    runtime = expensive_site.runtime()

    report = backtest_rules(runtime, "expensive", BacktestRequest("1h"), budgeted.router(runtime))

    (rule,) = report.rules
    lines = rule.targets[0]
    assert (report.events, rule.matched, rule.left_out) == (4, 3, 0)
    assert (lines.rendered, lines.failed, lines.failures) == (2, 1, (Failure("it said so", 1, ("2",)),))
    assert [each.of.event_id for each in lines.samples] == ["1", "2", "3"]
    assert runtime.store.list("deliveries/") == []


def test_events_beyond_the_budget_are_left_out(expensive_site: budgeted.BudgetedSite) -> None:
    """A looping event uses the whole budget; it and later events are in no other number, and the report says why."""
    expensive_site.program("loop")
    runtime = expensive_site.runtime()

    report = backtest_rules(runtime, "expensive", BacktestRequest("1h"), budgeted.router(runtime))

    (rule,) = report.rules
    assert (rule.matched, rule.left_out, rule.left_out_why) == (1, 2, "the CPU budget of a budgeted rule was spent")


def test_a_budgeted_rule_is_compared_with_a_cheap_one(expensive_site: budgeted.BudgetedSite) -> None:
    """Both rules are routed in the same way, and events that one did not route are not compared."""
    runtime = expensive_site.runtime()

    report = diff_rules(runtime, "cheap", "expensive", BacktestRequest("1h"), budgeted.router(runtime))

    (pair,) = report.pairs
    assert (pair.both, pair.gained, pair.lost, pair.left_out) == (3, 0, 1, 0)
    assert [(each.target, each.only_in, each.changed) for each in pair.targets] == [("lines", "", 3), ("more", "B", 0)]
    assert [each.event_id for each in pair.lost_samples] == ["0"]


def test_a_report_is_kept_as_json_and_markdown(archive: Any) -> None:
    """The report is stored as JSON and Markdown under the day and the id of the backtest."""
    report = backtest(archive, "big")

    uris = keep_report(archive.runtime, report)

    texts = [archive.runtime.store.get(uri.removeprefix(archive.runtime.store.uri.rstrip("/") + "/")) for uri in uris]
    assert json.loads(texts[0])["rules"][0]["matched"] == 4
    assert texts[1].decode().startswith("# Backtest of big\n")
    assert uris[0].endswith(f"reports/backtest/date=2026-03-01/{report.backtest_id}.json")
