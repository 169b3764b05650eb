"""Runs and compares candidates over the archive for the command line and the DAGs, and reads the rules that candidates
name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from eventbridge.backtest.markdown import as_markdown
from eventbridge.backtest.report import BacktestReport, DiffReport, to_json
from eventbridge.backtest.run import ArchivePart, Candidate, backtest, diff
from eventbridge.control.check_rules import read_sent_rules
from eventbridge.errors import NotFoundError, RuleFileError, UserError
from eventbridge.processes import check_cancelled
from eventbridge.progress import Progress, unreported
from eventbridge.routing.job import Router
from eventbridge.routing.task import InProcessRouter
from eventbridge.rules import Bus, Rule, RuleSet
from eventbridge.rules.files import SUFFIXES
from eventbridge.rules.load import load_rule_file
from eventbridge.rules.model import FAST_FORMS
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.time_range import refuse_pruned, time_range
from eventbridge.similar_names import suggest
from eventbridge.store import layout
from eventbridge.views.rules import rules_at

#: The default and the maximum number of samples in each list of a report. A report is read into memory as a whole.
SAMPLES, MAX_SAMPLES = 3, 100

#: The name that messages and reports use for a rule file that is given only as text.
_PASTED = "pasted-rules.yaml"


@dataclass(frozen=True)
class BacktestRequest:
    """The part of the archive to use, the bus if a rule file has rules of several buses, and the number of samples.

    Times are ISO 8601, in UTC unless they have an offset, or ages such as `2h`. An empty `until` means now.
    """

    since: str | None
    until: str | None = None
    bus: str | None = None
    samples: int = SAMPLES

    def part(self, runtime: Runtime, max_events: int | None = None) -> ArchivePart:
        """Return the part of the archive, of at most `max_events`. Raises UserError for an invalid request."""
        if not 0 <= self.samples <= MAX_SAMPLES:
            raise UserError(f"cannot keep {self.samples} samples. Give a number from 0 to {MAX_SAMPLES}")
        since, until = time_range(runtime.ledger.now(), self.since, self.until)
        return ArchivePart(since, until, self.samples, max_events)


def backtest_rules(
    runtime: Runtime,
    candidate: str,
    request: BacktestRequest,
    router: Router,
    *,
    paths: bool = False,
    progress: Progress = unreported,
) -> BacktestReport:
    """Run a candidate over the archive. `read_candidate` explains `candidate` and `paths`.

    Raises UserError, with a remedy, if the request is invalid.
    """
    part = request.part(runtime)
    read = read_candidate(runtime, candidate, request.bus, paths=paths)
    refuse_pruned(runtime, read.bus, part.since, part.until)
    return backtest(runtime, read, part, router, progress)


def backtest_here(runtime: Runtime, candidate: str, request: BacktestRequest, max_events: int) -> BacktestReport:
    """Run a candidate over at most `max_events` archived events, in this process and without Spark; write nothing.

    `candidate` is a rule, RULE@VERSION, or the text of a rule file. Raises UserError, with a remedy, if the request is
    invalid, has too many events, or if only Spark can evaluate a rule. Raises Cancelled or TimeSpent between two slices
    of the archive, once the caller has left or the time is over.
    """
    part = request.part(runtime, max_events)
    read = read_candidate(runtime, candidate, request.bus)
    rules = read.rules
    if budgeted := sorted(each.name for each in rules.rules.values() if each.is_budgeted):
        raise UserError(
            f"the rules {', '.join(budgeted)} have an SQL condition, or a transform of a form other than "
            f"{', '.join(sorted(FAST_FORMS))}, so their cost has no bound. Run `eventbridge rules backtest`, or leave "
            "these rules out"
        )
    refuse_pruned(runtime, read.bus, part.since, part.until)
    router = InProcessRouter(runtime.store, rules=rules)
    return backtest(runtime, read, part, router, lambda *_: check_cancelled(), freeze=lambda _, each: each.hash)


def diff_rules(
    runtime: Runtime,
    a: str,
    b: str,
    request: BacktestRequest,
    router: Router,
    *,
    paths: bool = False,
    progress: Progress = unreported,
) -> DiffReport:
    """Run two candidates over the archive, and compare them. `read_candidate` explains `a`, `b` and `paths`.

    Raises UserError, with a remedy, if the request is invalid.
    """
    part = request.part(runtime)
    ours, theirs = (read_candidate(runtime, each, request.bus, paths=paths) for each in (a, b))
    if ours.bus != theirs.bus:
        raise UserError(f"{a} is for bus {ours.bus!r} and {b} for {theirs.bus!r}. Compare rules of one bus")
    refuse_pruned(runtime, ours.bus, part.since, part.until)
    return diff(runtime, ours, theirs, part, router, progress)


def keep_report(runtime: Runtime, report: BacktestReport | DiffReport) -> tuple[str, str]:
    """Write a report to the store as JSON and Markdown, and return the URIs of both files."""
    found = []
    for suffix, text in (("json", to_json(report) + "\n"), ("md", as_markdown(report))):
        path = layout.backtest_report(report.made_at, report.backtest_id, suffix)
        runtime.store.put(path, text.encode("utf-8", "replace"))
        found.append(f"{runtime.store.uri.rstrip('/')}/{path}")
    return found[0], found[1]


def is_rule_text(candidate: str) -> bool:
    """Return whether a candidate is the text of a rule file, and not a name."""
    return candidate.lstrip().startswith(("rules:", "buses:", "#")) or "\n" in candidate.strip()


def read_candidate(runtime: Runtime, name: str, bus: str | None = None, *, paths: bool = False) -> Candidate:
    """Return the candidate that `name` means: RULE, RULE@VERSION, or the text of a rule file.

    If `bus` is set, only the rules of this bus are used; a file with rules of several buses requires it. If `paths`,
    `name` may also be the path of a rule file (`.yaml`). Set `paths` only for callers with the rights of this process,
    because a caller that starts a task or uses the API could otherwise read files of the host. Raises RuleFileError
    with every error in a rule file, NotFoundError for an unknown name, and UserError for any other invalid candidate.
    """
    if not name.strip():
        raise UserError(f"no candidate given. Write the name of a rule, RULE@VERSION, or {_what_of(paths)}")
    rule, at, version = name.partition("@")
    if is_rule_text(name):
        name, found = _PASTED, _rules_of_file(runtime, Path(_PASTED), name.encode())
    elif Path(name).suffix in SUFFIXES or "/" in name:
        if not paths or Path(name).suffix not in SUFFIXES:
            raise UserError(f"{name!r} is not the name of a rule. Write a name, RULE@VERSION, or {_what_of(paths)}")
        found = _rules_of_file(runtime, Path(name))
    elif at:
        found = [_former_rule(runtime, rule, version)]
    else:
        found = [_current_rule(runtime, name)]
    chosen = [each for each in found if bus is None or each[0].bus == bus]
    buses = {each.name: each for _, each in chosen}
    if not chosen:
        raise UserError(f"{name} has no rule of bus {bus!r}. Its buses: {_list_names(each.name for _, each in found)}")
    if len(buses) > 1:
        raise UserError(f"{name} has rules of several buses: {_list_names(buses)}. Choose one: --bus NAME")
    rules = {each.name: each.model_copy(update={"enabled": True}) for each, _ in chosen}
    return Candidate(name, next(iter(buses)), RuleSet(buses=buses, rules=rules))


def _what_of(paths: bool) -> str:
    return "the path of a rule file, which ends in .yaml" if paths else "the text of a rule file. Paths are not read"


def _list_names(names: Iterable[str]) -> str:
    return ", ".join(sorted(set(names))) or "none"


def _current_rule(runtime: Runtime, name: str) -> tuple[Rule, Bus]:
    rules = runtime.rule_files()
    if name not in rules.rules:
        raise NotFoundError(f"no rule file defines a rule {name!r}. {suggest('Rules', name, rules.rules)}")
    return rules.rules[name], rules.buses[rules.rules[name].bus]


def _former_rule(runtime: Runtime, name: str, version: str) -> tuple[Rule, Bus]:
    rules = rules_at(runtime, name, version)
    return rules.rules[name], rules.buses[rules.rules[name].bus]


def _rules_of_file(runtime: Runtime, path: Path, content: bytes | None = None) -> list[tuple[Rule, Bus]]:
    try:
        buses = runtime.rule_set().buses
    except RuleFileError:  # the file itself must then define the buses of its rules
        buses = {}
    rules = load_rule_file(path, buses) if content is None else read_sent_rules(path, buses, content)
    if not rules.rules:
        raise UserError(f"{path} has no rules. Name a file with rules")
    return [(rule, rules.buses[rule.bus]) for rule in rules.rules.values()]
