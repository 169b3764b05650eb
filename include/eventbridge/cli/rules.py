"""`eventbridge rules`: check rule files, show what they mean, try a rule or a pattern on events."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from eventbridge.cli.output import JsonOption, plain, show_json, show_table
from eventbridge.cli.workplace import settings
from eventbridge.document import parse_document
from eventbridge.errors import EventError, NotFoundError, RuleFileError, UserError
from eventbridge.match.reference import explain, flatten, matches_leaves
from eventbridge.pattern import Pattern, parse_pattern
from eventbridge.rule import RuleSet, load_rules

app = typer.Typer(help="Check rule files and try them.", no_args_is_help=True)

FolderOption = Annotated[
    Path | None, typer.Option("--rules", help="Folder of rule files; default: EVENTBRIDGE_RULES_FOLDER.")
]


@app.command()
def check(folder: FolderOption = None, as_json: JsonOption = False) -> None:
    """Check every rule file; prints all mistakes with file, line, path and remedy, exit code 2 if there are any."""
    try:
        rules = _load(folder)
    except RuleFileError as error:
        if not as_json:
            raise
        show_json({"mistakes": plain(error.mistakes)})
        raise typer.Exit(error.exit_code) from error
    if as_json:
        show_json({"mistakes": [], "hash": rules.hash, "buses": len(rules.buses), "rules": len(rules.rules)})
    else:
        typer.echo(f"{len(rules.rules)} rules on {len(rules.buses)} buses: no mistakes (rule set {rules.hash[:12]})")


@app.command()
def show(
    rule: Annotated[str | None, typer.Argument(help="One rule, whole; default: a line each.")] = None,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the rules as the product understands them, defaults filled in."""
    rules = _load(folder)
    if rule is not None:
        found = json.loads(rules.to_json())["rules"].get(rule)
        if found is None:
            raise _no_rule(rules, rule)
        show_json(found)
    elif as_json:
        show_json(json.loads(rules.to_json()))
    else:
        show_table(
            "Rules",
            ["rule", "version", "bus", "runner", "priority", "pool", "targets", "enabled"],
            [
                [r.name, r.version, r.bus, r.runner, r.priority, r.pool_name, ", ".join(r.targets), r.enabled]
                for r in rules.rules.values()
            ],
        )


@dataclass(frozen=True)
class _Answer:
    line: int
    event: str
    matches: bool | None
    error: str = ""
    findings: tuple[Any, ...] = ()


@app.command("test")
def try_on_events(
    rule: Annotated[str | None, typer.Argument(help="Rule to try; or give --pattern.")] = None,
    pattern: Annotated[Path | None, typer.Option(help="File that holds one JSON pattern.")] = None,
    events: Annotated[str, typer.Option(help="JSON lines of events; - reads standard input.")] = "-",
    why: Annotated[bool, typer.Option("--explain", help="Say which condition failed, with the value seen.")] = False,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say of each event whether a rule's pattern matches it; exit code 0 whatever the answers are."""
    parsed = _pattern(rule, pattern, folder)
    answers = [_answer(parsed, number, line, explained=why) for number, line in _lines(events)]
    if as_json:
        show_json(answers)
        return
    for answer in answers:
        word = {True: "true", False: "false", None: "error"}[answer.matches]
        typer.echo(f"{answer.line}: {word} {answer.event}{': ' + answer.error if answer.error else ''}")
        for finding in answer.findings:
            typer.echo(f"    {finding}")


def _answer(pattern: Pattern, number: int, line: bytes, *, explained: bool) -> _Answer:
    try:
        document = parse_document(line)
    except EventError as error:
        return _Answer(number, "", None, str(error))
    name = document.get("id")
    matched = matches_leaves(pattern, flatten(document))
    findings = tuple(explain(pattern, document)) if explained and not matched else ()
    return _Answer(number, name if isinstance(name, str) else "", matched, findings=findings)


def _pattern(rule: str | None, file: Path | None, folder: Path | None) -> Pattern:
    if (rule is None) == (file is None):
        raise typer.BadParameter("name a rule, or give --pattern FILE; one of the two")
    if file is not None:
        try:
            return parse_pattern(file.read_text())
        except OSError as error:
            raise UserError(f"cannot read {file}: {error.strerror}. Name a file that holds one JSON pattern") from error
    rules = _load(folder)
    if rule not in rules.rules:
        raise _no_rule(rules, str(rule))
    return parse_pattern(rules.rules[rule].pattern)


def _lines(events: str) -> Iterator[tuple[int, bytes]]:
    try:
        data = sys.stdin.buffer.read() if events == "-" else Path(events).read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {events}: {error.strerror}. Name a file of JSON lines, or - for input") from error
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            yield number, line


def _load(folder: Path | None) -> RuleSet:
    return load_rules(folder if folder is not None else Path(settings().rules_folder))


def _no_rule(rules: RuleSet, name: str) -> NotFoundError:
    return NotFoundError(f"no rule file names a rule {name!r}. Rules: {', '.join(sorted(rules.rules)) or 'none'}")
