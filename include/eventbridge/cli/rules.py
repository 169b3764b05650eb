"""Defines the command group `rules`, which checks and shows rule files, tests a rule on events, and changes a rule."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventbridge.cli import backtest, operate
from eventbridge.cli.lines import numbered_lines
from eventbridge.cli.operate import publish_rules, release
from eventbridge.cli.options import takes_records
from eventbridge.cli.output import (
    JsonOption,
    json_text,
    note,
    plural,
    print_line,
    show_document,
    show_table,
    visible,
    warn,
)
from eventbridge.cli.runtime import open_runtime, settings
from eventbridge.cli.suggestion import Group
from eventbridge.errors import EventError, RuleFileError, UserError

if TYPE_CHECKING:
    from eventbridge.control.check_rules import RulesChecked
    from eventbridge.matching.pattern import Pattern
    from eventbridge.matching.reference import UnmetCondition
    from eventbridge.rules import RuleSet

app = typer.Typer(cls=Group, help="Check, show and test rules; release, pause, disable a rule.", no_args_is_help=True)
app.command("backtest", short_help="Report what a rule would deliver from archived events.")(
    takes_records(backtest.backtest)
)
app.command("diff", short_help="Compare two rules over archived events.")(takes_records(backtest.diff))
app.command(short_help="Release a rule that is on hold.")(release)
app.command("pause", short_help="Pause a rule: its deliveries wait.")(operate.pause_rule)
app.command("resume", short_help="Resume a paused rule.")(operate.resume_rule)
app.command("disable", short_help="Disable a rule: it matches nothing.")(operate.disable_rule)
app.command("enable", short_help="Enable a rule that was disabled by a command.")(operate.enable_rule)
app.command("priority", short_help="Override the priority of a rule.")(operate.set_priority)
app.command("publish", short_help="Check rule files and publish them to other hosts.")(publish_rules)

FolderOption = Annotated[
    Path | None,
    typer.Option("--rules", metavar="FOLDER", help="Folder of rule files; default: EVENTBRIDGE_RULES_FOLDER."),
]


@app.command(short_help="Check rule files and run the tests of their rules.")
def check(folder: FolderOption = None, as_json: JsonOption = False) -> None:
    """Check every rule file and, if the files have no other error, run the tests of their rules.

    Reports every error, with file, line, column, path and remedy; exit code 2 if there are any.
    """
    from eventbridge.policy.streaming import short_of_slots

    checked = _check(folder)
    rules = checked.rules
    if as_json:
        show_document(checked.document())
    elif rules is None:
        raise RuleFileError(checked.errors)
    else:
        tested = f", {plural(checked.tests, 'test', 'tests')} passed" if checked.tests else ""
        what = f"{plural(len(rules.rules), 'rule', 'rules')} on {plural(len(rules.buses), 'bus', 'buses')}"
        print_line(f"{what}: no errors{tested}")
    if rules is None:
        raise typer.Exit(RuleFileError.exit_code)
    for warning in checked.warnings():
        warn(f"{warning}.")
    short = short_of_slots(len(rules.streaming_task_seconds()), _parallelism())
    if short is not None:
        warn(short)


def _parallelism() -> int:
    """Return how many tasks Airflow runs at a time, from the environment; 0 if unknown."""
    value = os.environ.get("AIRFLOW__CORE__PARALLELISM", "")
    return int(value) if value.isdecimal() else 0


@app.command(short_help="Print the JSON Schema of rule files, for editors.")
def schema() -> None:
    """Print the JSON Schema of rule files, for editors.

    Save it, and name it in the first line of a rule file: `# yaml-language-server: $schema=PATH`.
    """
    from eventbridge.rules.json_schema import rule_file_schema

    print_line(json_text(rule_file_schema()))


@app.command("list", short_help="List the rules.")
def list_rules(folder: FolderOption = None, as_json: JsonOption = False) -> None:
    """List the rules as EventBridge reads them: runner, priority, pool and targets of each."""
    from eventbridge.event.json_document import parse_document

    rules = _load(folder)
    if as_json:
        # not json.loads, which would round the numbers of a pattern
        show_document(parse_document(rules.to_json()))
        return
    owned = bool(rules.owners())
    show_table(
        "Rules",
        ["rule", *["owner"] * owned, "runner", "priority", "pool", "targets"],
        [
            [
                r.name if r.enabled else f"{r.name} (disabled)",
                *[rules.owner_of(r)] * owned,
                _runner_cell(rules, r.runner, r.bus),
                r.priority,
                r.pool_name,
                ", ".join(r.targets),
            ]
            for r in rules.rules.values()
        ],
    )


@app.command(short_help="Show one rule completely.")
def show(
    rule: Annotated[str, typer.Argument(metavar="RULE", help="A rule, or RULE@VERSION for an older version.")],
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one rule as EventBridge reads it, as JSON, with its defaults filled in."""
    from eventbridge.event.json_document import parse_document
    from eventbridge.rules.find import find_rule

    rule, _, version = rule.partition("@")
    rules = _load(folder) if not version else _rules_at(rule, version)
    find_rule(rules, rule)
    document: Any = parse_document(rules.to_json())
    show_document(document["rules"][rule])


def _runner_cell(rules: RuleSet, runner: str, bus: str) -> str:
    name = runner if runner == bus else f"{runner} on {bus}"
    return name if rules.mode_of(runner).mode == "batch" else f"{name} (streaming)"


@app.command(short_help="Show when rules were added, changed and removed.")
def history(
    rule: Annotated[
        str | None, typer.Argument(metavar="RULE", help="Only changes of this rule; default: of all rules.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of changes to list.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """Show when rules were added, changed and removed, the newest change first.

    A change is recorded when a batch is planned with it. `rules show RULE@VERSION` shows an older version.
    """
    from eventbridge.views.rules import rule_history

    with open_runtime(expects_ledger=True) as runtime:
        found = rule_history(runtime, rule, limit)
    if as_json:
        show_document(found)
        return
    show_table(
        "Changes of rules, times in UTC",
        ["rule", "version", "since", "rule set"],
        [[each.rule, each.version or "(removed)", each.at, each.rule_set] for each in found],
    )


def _rules_at(rule: str, version: str) -> RuleSet:
    from eventbridge.views.rules import rules_at

    with open_runtime(expects_ledger=True) as runtime:
        return rules_at(runtime, rule, version)


@app.command("test", short_help="Test whether a rule's pattern matches events.")
def try_on_events(
    rule: Annotated[str | None, typer.Argument(metavar="RULE", help="Rule to test; or give --pattern.")] = None,
    pattern: Annotated[Path | None, typer.Option(metavar="FILE", help="File that holds one JSON pattern.")] = None,
    events: Annotated[str, typer.Option(metavar="FILE", help="Events as JSON lines; - is standard input.")] = "-",
    why: Annotated[
        bool, typer.Option("--explain", help="Show which condition failed, and the values of the event.")
    ] = False,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Test whether a rule's pattern matches each event, and print a line `number: true|false id` for each.

    `where` is not evaluated: only Spark can do that.

    The exit code is 0 whatever the results are, and 2 if a line is not one JSON object.
    """
    parsed = _pattern(rule, pattern, folder)
    responses = results_of_lines(parsed, events, cloud_events=rule is not None, explained=why)
    refused = 0
    if as_json:
        found = list(responses)
        refused = sum(response.matches is None for response in found)
        show_document(found)
    else:
        for response in responses:
            refused += response.matches is None
            print_line(str(response))
    if refused:
        raise typer.Exit(UserError.exit_code)


def _pattern(rule: str | None, file: Path | None, folder: Path | None) -> Pattern:
    from eventbridge.matching.pattern import parse_pattern
    from eventbridge.rules.find import find_rule

    if (rule is None) == (file is None):
        raise typer.BadParameter("name a rule or give --pattern FILE, but not both")
    if file is not None:
        try:
            return parse_pattern(file.read_bytes())
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise UserError(f"cannot read {file}: {why}. Name a file that holds one JSON pattern") from error
    found = find_rule(_load(folder), str(rule))
    if not found.enabled:
        note(f"the rule {rule} has `enabled: false`, so it matches no event until it is enabled")
    if found.where is not None:
        note("the rule has `where`, which only Spark evaluates: `where` may still reject an event that matches here")
    return parse_pattern(found.pattern)


def _check(folder: Path | None) -> RulesChecked:
    from eventbridge.control.check_rules import RulesChecked, check_folder

    try:
        with _folder(folder) as path:
            checked = check_folder(path, settings().target_locations)
            if checked.errors:
                raise RuleFileError(checked.errors)  # via `rule_folder`, which translates paths of copied files
            return checked
    except RuleFileError as error:
        return RulesChecked(tuple(error.errors))


def _load(folder: Path | None) -> RuleSet:
    from eventbridge.rules.load import load_rules

    if folder is not None:
        return load_rules(folder)
    with _folder(None) as path:
        return load_rules(path, cache=settings().rule_cache)


@contextmanager
def _folder(folder: Path | None) -> Iterator[Path]:
    """Yield the folder of rule files, by default that of the settings; rule files in a bucket are copied first."""
    path = folder if folder is not None else settings().rules_folder
    if isinstance(path, Path):
        yield path
        return
    from eventbridge.config.connection import connections_from_environment
    from eventbridge.runtime.bucket_rules import rule_folder

    with rule_folder(path, connections_from_environment(os.environ)) as copies:
        yield copies


#: A file counts as JSON lines only if at least one of this many first lines is a JSON object.
_MAX_BUFFERED_LINES = 20


@dataclass(frozen=True)
class PatternResult:
    """The result of a pattern for one event; `error` is why it is not JSON, and `malformed` is why it is not a
    CloudEvent."""

    line: int
    event: str | None
    matches: bool | None
    error: str | None = None
    malformed: str | None = None
    findings: tuple[UnmetCondition, ...] = ()

    def __str__(self) -> str:
        word = {True: "true", False: "false", None: "error"}[self.matches]
        about = [self.event, self.error, self.malformed and f"(not a CloudEvent: {self.malformed})"]
        head = visible(f"{self.line}: {' '.join([word, *(part for part in about if part)])}")
        return "\n".join([head, *(f"    {visible(str(finding))}" for finding in self.findings)])


def results_of_lines(pattern: Pattern, events: str, *, cloud_events: bool, explained: bool) -> Iterator[PatternResult]:
    """Yield the result of a pattern for each line of a file, or of standard input for `-`.

    If `cloud_events`, it also checks that each line is a CloudEvent; if `explained`, it adds the conditions that
    failed. Raises UserError for a file that cannot be read, or whose lines are not JSON objects.
    """
    return _if_json_lines(_results(pattern, events, cloud_events=cloud_events, explained=explained), events)


def _results(pattern: Pattern, events: str, *, cloud_events: bool, explained: bool) -> Iterator[PatternResult]:
    from eventbridge.event.json_document import parse_document
    from eventbridge.matching.reference import explain, flatten, matches_leaves

    limit = settings().event_max_size
    for number, line in numbered_lines(events):
        try:
            document = parse_document(line)
        except EventError as error:
            yield PatternResult(number, None, None, error=str(error))
            continue
        event = document.get("id")
        matched = matches_leaves(pattern, flatten(document))
        yield PatternResult(
            number,
            event if isinstance(event, str) else None,
            matched,
            malformed=_malformed(line, limit) if cloud_events else None,
            findings=tuple(explain(pattern, document)) if explained and not matched else (),
        )


def _if_json_lines(results: Iterator[PatternResult], events: str) -> Iterator[PatternResult]:
    """Yield the results. Raises UserError once if none of the first lines is a JSON object.

    YAML, or JSON over several lines, would otherwise give one error per line.
    """
    buffered: list[PatternResult] = []
    for result in results:
        buffered.append(result)
        if result.error is None:
            yield from buffered
            yield from results
            return
        if len(buffered) == _MAX_BUFFERED_LINES:
            break
    if buffered:
        where = "standard input" if events == "-" else events
        none = f"none of the first {len(buffered)} lines" if len(buffered) == _MAX_BUFFERED_LINES else "no line"
        raise UserError(
            f"{where}: {none} is one JSON object; line {buffered[0].line} is {buffered[0].error}. "
            "Write each event as JSON on one line: `jq -c .` converts JSON over several lines"
        )


def _malformed(line: bytes, limit: int) -> str | None:
    from eventbridge.event.cloudevent import parse_event

    try:
        parse_event(line, max_bytes=limit)
    except EventError as error:
        return str(error)
    return None


@app.command(short_help="Show how a shadow differs from its target.")
def shadow(
    rule: Annotated[str, typer.Argument(metavar="RULE", help="A rule with a shadow target.")],
    since: Annotated[
        str,
        typer.Option(
            "--from", metavar="TIME", help="Batches planned since TIME: RFC 3339, or an age such as 2h or 7d."
        ),
    ] = "1h",
    until: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Batches planned before TIME; default: now.")
    ] = None,
    sample: Annotated[
        int, typer.Option(min=0, max=1_000, metavar="N", help="Maximum number of differences to show for each shadow.")
    ] = 10,
    as_json: JsonOption = False,
) -> None:
    """Show where outputs and responses of shadows differ from those of the targets that they shadow."""
    from eventbridge.views.shadow import shadow_document, shadow_reports

    with open_runtime(expects_ledger=True) as runtime:
        reports = shadow_reports(runtime, rule, since, until, sample)
    if as_json:
        show_document([shadow_document(each) for each in reports])
        return
    show_table(
        f"Shadows of {rule}",
        ["shadow", "of", "compared", "other outputs", "responded", "other responses", "failed", "not sent"],
        [
            [r.shadow, r.target, r.compared, r.other_outputs, r.responded, r.other_responses, r.failed, r.not_sent]
            for r in reports
        ],
    )
    rows = [[r.shadow, d.event_id, d.what, d.target, d.shadow] for r in reports for d in r.samples]
    if rows:
        show_table("Differences", ["shadow", "event", "what", "target", "shadow's"], rows)
