"""Defines the command group `redrives`, which delivers dead letters again and manages redrives."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from eventbridge.cli.interrupt import Interrupts
from eventbridge.cli.options import DeadLetterOptions, refuse_unknown, takes_records, warn_about_damage
from eventbridge.cli.output import (
    JsonOption,
    counts_text,
    end_text,
    note,
    plural,
    print_line,
    selection_text,
    show_document,
    show_fields,
    show_table,
)
from eventbridge.cli.progress import log_warnings, shown_progress
from eventbridge.cli.runtime import open_runtime
from eventbridge.cli.suggestion import Group
from eventbridge.errors import UserError

if TYPE_CHECKING:
    from collections import Counter

    from eventbridge.dead_letters.redrive_plan import Survey
    from eventbridge.model.redelivery import Redrive
    from eventbridge.routing.job import Router
    from eventbridge.runtime.runtime import Runtime


app = typer.Typer(cls=Group, help="Deliver dead letters again; list, show and cancel redrives.", no_args_is_help=True)

RedriveArgument = Annotated[str, typer.Argument(metavar="REDRIVE", help="Id of a redrive, or its beginning.")]
SparkOption = Annotated[
    str | None,
    typer.Option("--spark", metavar="URL", help="For --retransform: Spark Connect server, as for `deliver`."),
]


@dataclass(frozen=True)
class RedriveOptions:
    """Those options of a redrive that do not select dead letters."""

    rate: Annotated[
        float | None,
        typer.Option(metavar="N", help="Maximum number of dead letters per second, 0.1 or more; default: no limit."),
    ] = None
    retransform: Annotated[
        bool,
        typer.Option(
            "--retransform", help="Route the events through the current rules, with new delivery ids, instead."
        ),
    ] = False
    again: Annotated[bool, typer.Option("--again", help="Also take dead letters that were redriven before.")] = False


@app.command("start", short_help="Deliver dead letters again.")
@takes_records
def start(
    chosen: DeadLetterOptions,
    how: RedriveOptions,
    everything: Annotated[
        bool, typer.Option("--all", help="Take all dead letters; required if no filter is given.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show which dead letters would be taken, and which not.")
    ] = False,
    spark: SparkOption = None,
    as_json: JsonOption = False,
) -> None:
    """Deliver dead letters again, in this process, in batches of kind `redrive`.

    Bodies are sent unchanged, with the same delivery ids, to the targets as rule files define them now. Age and
    attempts count from now. A delivery that fails is retried according to the rule's retry policy, or becomes a new
    dead letter.
    """
    from eventbridge.dead_letters.redrive_plan import begin_redrive, refuse_rate, survey

    if not chosen.is_given and not everything:
        raise UserError("no filter given. Use a filter such as --rule or --reason, or --all")
    if everything and chosen.is_given:
        raise UserError("--all takes no filter. Leave --all or the filter out")
    refuse_rate(how.rate)
    log_warnings()
    with Interrupts() as interrupts, open_runtime(expects_ledger=True, is_action=not dry_run) as runtime:
        selection = chosen.selection(runtime.clock())
        refuse_unknown(runtime, chosen.rule, chosen.target)
        if dry_run:
            found = survey(runtime, selection, retransform=how.retransform, again=how.again)
            _show_survey(found, as_json=as_json)
            warn_about_damage(found.damaged)
            return
        request = begin_redrive(runtime, selection, f"command {uuid.uuid4()}", **vars(how))
        note(f"redrive {request.redrive_id}; `eventbridge redrives cancel {request.redrive_id[:8]}` cancels it")
        _deliver(runtime, request, spark, interrupts, as_json=as_json)


@app.command("resume", short_help="Continue a redrive whose command was interrupted.")
def resume(redrive_id: RedriveArgument, spark: SparkOption = None, as_json: JsonOption = False) -> None:
    """Continue a redrive whose command was interrupted or died, in this process, with the options it began with."""
    from eventbridge.dead_letters.redrives import find_redrive

    log_warnings()
    with Interrupts() as interrupts, open_runtime(expects_ledger=True, is_action=True) as runtime:
        _deliver(runtime, find_redrive(runtime, redrive_id), spark, interrupts, as_json=as_json)


def _deliver(runtime: Runtime, request: Redrive, spark: str | None, interrupts: Interrupts, *, as_json: bool) -> None:
    """Deliver a redrive until it ends, and print its results; exits with the code of an interrupt or of damage."""
    from eventbridge.control.consecutive_batches import deliver_redrive
    from eventbridge.dead_letters.redrive_plan import survey_of
    from eventbridge.dead_letters.redrives import Marks, redrive_document

    with ExitStack() as stack:
        stack.enter_context(_exclusive(runtime, request))
        interrupts.begin()
        router = _router(runtime, request, spark, stack, interrupts)
        with shown_progress("redriving", "dead letters") as progress:
            deliver_redrive(runtime, request.redrive_id, router, interrupts.stop, progress)
        request = runtime.ledger.redrives.get(request.redrive_id)
        marks = Marks(runtime)
        counts, damaged = marks.counts(request), marks.damaged
        if request.state == "done":
            left = survey_of(runtime, request)
            damaged |= left.damaged
            _note_skipped(left)
    if as_json:
        show_document(redrive_document(request, counts))
    else:
        taken = plural(counts.total(), "dead letter", "dead letters")
        print_line(end_text("redrive", request.redrive_id, request.state, taken, counts))
    if interrupts.exit_code:
        raise typer.Exit(interrupts.exit_code)
    warn_about_damage(damaged)


@app.command("list", short_help="List redrives with their results.")
def list_redrives(as_json: JsonOption = False) -> None:
    """List redrives, the newest first, with the results of their deliveries."""
    from eventbridge.dead_letters.redrives import Marks, redrive_document

    with open_runtime(expects_ledger=True) as runtime:
        marks = Marks(runtime)
        found = [(each, marks.counts(each)) for each in runtime.ledger.redrives.all()]
    if as_json:
        show_document([redrive_document(each, counts) for each, counts in found])
    else:
        _show_redrives(found)
    warn_about_damage(marks.damaged)


def _show_redrives(redrives_with_outcomes: Sequence[tuple[Redrive, Counter[str]]]) -> None:
    show_table(
        "Redrives, times in UTC",
        ["redrive", "state", "started", "ended", "filter", "taken", "result"],
        [
            [r.redrive_id, r.state, r.started_at, r.ended_at, _filter_text(r), counts.total(), counts_text(counts)]
            for r, counts in redrives_with_outcomes
        ],
        ids={"redrive"},
    )


@app.command("show", short_help="Show the options and results of a redrive.")
def show(redrive_id: RedriveArgument, as_json: JsonOption = False) -> None:
    """Show one redrive: its state, its options, and the results of its deliveries."""
    from eventbridge.dead_letters.redrives import Marks, find_redrive, redrive_document

    with open_runtime(expects_ledger=True) as runtime:
        found = find_redrive(runtime, redrive_id)
        marks = Marks(runtime)
        counts = marks.counts(found)
    if as_json:
        show_document(redrive_document(found, counts))
    else:
        show_fields(
            [
                ("redrive", found.redrive_id),
                ("state", found.state),
                ("started", found.started_at),
                ("ended", found.ended_at),
                ("filter", _filter_text(found)),
                ("taken", f"{counts.total():,}"),
                ("result", counts_text(counts) or None),
            ]
        )
    warn_about_damage(marks.damaged)


@app.command(short_help="Cancel a redrive after its current batch.")
def cancel(redrive_id: RedriveArgument, as_json: JsonOption = False) -> None:
    """Cancel a redrive: it plans no further batch; its current batch is finished."""
    from eventbridge.dead_letters.redrives import find_redrive

    with open_runtime(expects_ledger=True, is_action=True) as runtime:
        found = find_redrive(runtime, redrive_id)
        cancelled = runtime.ledger.redrives.end(found.redrive_id, "cancelled")
        found = runtime.ledger.redrives.get(found.redrive_id)
    if as_json:
        show_document({"redrive_id": found.redrive_id, "state": found.state, "cancelled": cancelled})
    elif cancelled:
        print_line(f"Redrive {found.redrive_id} cancelled. The dead letters that it did not take stay as they are.")
    else:
        print_line(f"Redrive {found.redrive_id} has ended already: {found.state}.")


def _exclusive(runtime: Runtime, request: Redrive) -> AbstractContextManager[None]:
    from eventbridge.cli.deliver import exclusive

    return exclusive(runtime.settings, f"redrive.{request.redrive_id}", f"command for redrive {request.redrive_id}")


def _router(runtime: Runtime, request: Redrive, spark: str | None, stack: ExitStack, interrupts: Interrupts) -> Router:
    if not request.retransform:
        from eventbridge.routing.task import InProcessRouter

        return InProcessRouter(runtime.store)  # stored requests need no routing
    from eventbridge.cli.deliver import spark_url
    from eventbridge.spark.route import ConnectRouter

    url = spark_url(runtime.settings, spark, stack)
    return ConnectRouter(url, store=runtime.store, is_stopped=interrupts.ends_spark)


def _note_skipped(survey: Survey) -> None:
    for (of, why), count in sorted(survey.left.items()):
        note(f"{plural(count, 'dead letter', 'dead letters')} of {of} {'was' if count == 1 else 'were'} skipped: {why}")


def _show_survey(survey: Survey, *, as_json: bool) -> None:
    from eventbridge.dead_letters.redrives import survey_document

    document = survey_document(survey)
    if as_json:
        show_document(document)
        return
    show_table(
        "Would be taken", ["rule/target", "dead letters"], [[each["of"], each["count"]] for each in document["taken"]]
    )
    print_line()
    show_table(
        "Would not be taken",
        ["rule/target", "dead letters", "why"],
        [[each["of"], each["count"], each["why"]] for each in document["left"]],
    )


def _filter_text(request: Redrive) -> str:
    options = {"retransform": request.retransform, "again": request.again}
    return selection_text(request.selection, request.rate, options)
