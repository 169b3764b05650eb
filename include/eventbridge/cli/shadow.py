"""`eventbridge rules shadow`: compares the shadows of a rule's targets with the targets that they shadow."""

from __future__ import annotations

from typing import Annotated

import typer

from eventbridge.cli.output import JsonOption, show_json
from eventbridge.cli.runtime import open_runtime
from eventbridge.cli.table import show_table


def shadow(
    rule: Annotated[str, typer.Argument(metavar="RULE", help="A rule with a shadow target.")],
    since: Annotated[
        str,
        typer.Option("--from", metavar="TIME", help="Batches planned since: ISO 8601, in UTC, or an age such as 2h."),
    ] = "1h",
    until: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Batches planned before; default: now.")
    ] = None,
    sample: Annotated[int, typer.Option(min=0, max=1_000, metavar="N", help="Differences shown of each shadow.")] = 10,
    as_json: JsonOption = False,
) -> None:
    """Show where outputs and responses of shadows differ from those of the targets that they shadow."""
    from eventbridge.views.shadow import shadow_reports

    with open_runtime(expects_ledger=True) as runtime:
        reports = shadow_reports(runtime, rule, since, until, sample)
    if as_json:
        show_json(reports)
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
