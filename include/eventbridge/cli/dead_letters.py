"""`eventbridge dead-letters`: what was given up, and why."""

from __future__ import annotations

import uuid
from itertools import islice
from typing import Annotated, Any

import typer

from eventbridge.cli.output import JsonOption, show_json, show_table
from eventbridge.cli.workplace import workplace
from eventbridge.errors import NotFoundError, UserError
from eventbridge.identity import delivery_id_text
from eventbridge.stages.records import dead_letters

app = typer.Typer(help="Look at what was given up.", no_args_is_help=True)


@app.command("list")
def list_dead_letters(
    rule: Annotated[str | None, typer.Option(help="Only those of this rule.")] = None,
    reason: Annotated[str | None, typer.Option(help="Only those with this reason, e.g. NonRetryable.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the newest batch first.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List dead letters, the newest batch first."""
    with workplace() as work:
        found = [_with_text_id(row) for row in islice(dead_letters(work, rule=rule, reason=reason), limit)]
    if as_json:
        show_json(found)
        return
    show_table(
        "Dead letters",
        ["delivery", "rule", "target", "reason", "event", "detail"],
        [[r["delivery_id"], r["rule"], r["target"], r["reason"], r["event_id"], r["detail"]] for r in found],
    )


@app.command()
def show(
    delivery: Annotated[str, typer.Argument(help="Delivery id, as `list` shows it and as `webhook-id` says.")],
    as_json: JsonOption = False,
) -> None:
    """Show one dead letter whole: the event, the request as transformed, every attempt."""
    try:
        wanted = uuid.UUID(delivery).bytes
    except ValueError as error:
        raise UserError(f"{delivery!r} is no delivery id: it is a UUID, as `dead-letters list` shows it") from error
    with workplace() as work:
        record = next((row for row in dead_letters(work, whole=True) if row["delivery_id"] == wanted), None)
    if record is None:
        raise NotFoundError(f"there is no dead letter of the delivery {delivery}")
    record = _with_text_id(record)
    if as_json:
        show_json(record)
        return
    attempts = record.pop("attempts")
    for name, value in record.items():
        typer.echo(f"{name}: {value.decode(errors='replace') if isinstance(value, bytes) else value}")
    show_table(
        "Attempts",
        ["number", "started", "ms", "outcome", "code", "error"],
        [
            [a["number"], a["started_at"], round(a["duration_ms"]), a["outcome"], a["code"], a["error"]]
            for a in attempts
        ],
    )


def _with_text_id(record: dict[str, Any]) -> dict[str, Any]:
    raw = record["delivery_id"]
    return record | {"delivery_id": delivery_id_text(raw) if raw is not None else None}
