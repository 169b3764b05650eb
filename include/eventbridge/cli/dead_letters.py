"""`eventbridge dead-letters`: what was given up, and why."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventbridge.cli.output import JsonOption, json_text, note, say, show_json, text
from eventbridge.cli.table import show_fields, show_table, show_text
from eventbridge.cli.workplace import workplace
from eventbridge.errors import EventError, UserError

if TYPE_CHECKING:
    from eventbridge.stages.workplace import Workplace

app = typer.Typer(help="Look at what was given up, and why.", no_args_is_help=True)

_ANSWER_LINES = 20


@app.command("list")
def list_dead_letters(
    rule: Annotated[str | None, typer.Option(metavar="RULE", help="Only those of this rule.")] = None,
    target: Annotated[str | None, typer.Option(metavar="TARGET", help="Only those of targets of this name.")] = None,
    reason: Annotated[
        str | None, typer.Option(metavar="REASON", help="Only those with this reason, e.g. NonRetryable.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List dead letters, the newest batch's first.

    The first column is what `dead-letters show` takes: a delivery id or, of an event that is no CloudEvent
    (Malformed), where it lies: bus/topic/queue/offset.
    """
    from eventbridge.stages.records import dead_letters, name_of

    with workplace(looking=True) as work:
        wanted = dead_letters(work, rule=rule, target=target, reason=_reason(reason))
        found = list(islice(wanted, limit + 1))
        if rule is not None and not found:
            _note_unknown(work, rule)
    more, found = len(found) > limit, found[:limit]
    if as_json:
        show_json([{"name": name_of(each)} | _with_text_id(each) for each in found])
        return
    show_table(
        "Dead letters",
        ["name", "rule", "target", "reason", "event", "detail"],
        [[name_of(r), r["rule"], r["target"], r["reason"], r["event_id"], r["detail"]] for r in found],
        ids={"name"},
    )
    if more:
        note(f"there are more than {limit}; --limit, --rule, --target and --reason choose")


@app.command()
def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Delivery id or its beginning, or [bus/]topic/queue/offset.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Show one dead letter whole: the event, the request as transformed, every attempt.

    NAME is what `dead-letters list` shows first, and what the target saw as `webhook-id`.
    """
    from eventbridge.stages.records import find_dead_letters, name_of, read_dead_letter

    with workplace(looking=True) as work:
        newest, *others = find_dead_letters(work, name)
        record = read_dead_letter(work, newest)
    if others:
        note(f"{len(others) + 1} dead letters have this name, as the event came more than once; this is the newest")
    if as_json:
        show_json({"name": newest.name} | _with_text_id(record))
    else:
        _show(name_of(record), record)


def _show(name: str, record: dict[str, Any]) -> None:
    attempts = record["attempts"]
    head = ("rule", "target", "reason", "detail", "event_id", "source")
    place = "/".join(str(record[part]) for part in ("bus", "topic", "queue_id", "offset"))
    times = ("arrived_at", "first_attempt_at", "last_attempt_at", "rule_version", "batch_id")
    show_fields(
        [
            ("name", name),
            *((each.replace("_", " "), record[each]) for each in head),
            ("event lies at", place),
            *((each.replace("_", " "), record[each]) for each in times),
        ]
    )
    for title, body in (("Event", record["event"]), ("Request", record["request"])):
        if body is not None:
            say()
            show_text(title, _readable(body))
    say()
    show_table(
        "Attempts, times in UTC",
        ["number", "started", "ms", "outcome", "code", "error"],
        [[a["number"], a["started_at"], a["duration_ms"], a["outcome"], _code(a), _error(a)] for a in attempts],
    )
    answer = attempts[-1]["response_head"] if attempts else None
    if answer:
        lines = text(answer).rstrip("\n").split("\n")
        cut = [f"... {len(lines) - _ANSWER_LINES} more lines: --json"] if len(lines) > _ANSWER_LINES else []
        say()
        show_text("Last answer", "\n".join([*lines[:_ANSWER_LINES], *cut]))


def _readable(body: bytes) -> str:
    from eventbridge.document import parse_document

    try:
        return json_text(parse_document(body))
    except EventError:
        return text(body)


def _code(attempt: dict[str, Any]) -> str | None:
    return None if attempt["code"] is None else str(attempt["code"])


def _error(attempt: dict[str, Any]) -> str | None:
    return ": ".join(part for part in (attempt["error_class"], attempt["error"]) if part) or None


def _reason(name: str | None) -> str | None:
    from eventbridge.rule.fields import nearest
    from eventbridge.stages.records import REASONS

    if name is not None and name not in REASONS:
        raise UserError(f"{name!r} is no reason. {nearest(name, REASONS) or 'Reasons: ' + ', '.join(REASONS)}")
    return name


def _note_unknown(work: Workplace, rule: str) -> None:
    from eventbridge.rule.fields import nearest

    with suppress(UserError):  # dead letters can be looked at while the rule files are being mended
        rules = work.rule_set().rules
        if rule not in rules:
            note(f"no rule file names a rule {rule!r}. {nearest(rule, rules)}".rstrip())


def _with_text_id(record: dict[str, Any]) -> dict[str, Any]:
    from eventbridge.identity import delivery_id_text

    raw = record["delivery_id"]
    return record | {"delivery_id": delivery_id_text(raw) if raw is not None else None}
