"""Defines the commands `dead-letters redrive`, `redrives` and `cancel`, which redeliver dead letters."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from eventbridge.cli.interrupt import Interrupts
from eventbridge.cli.options import DeadLetterOptions, refuse_unknown, warn_about_damage
from eventbridge.cli.output import JsonOption, note, plural, print_line, show_json, show_table
from eventbridge.cli.runtime import open_runtime
from eventbridge.errors import UserError

if TYPE_CHECKING:
    from collections import Counter

    from eventbridge.dead_letters.redrive_plan import Survey
    from eventbridge.model.redelivery import Redrive
    from eventbridge.routing.job import Router
    from eventbridge.runtime.runtime import Runtime


@dataclass(frozen=True)
class RedriveOptions:
    """The options of a redrive that do not select dead letters."""

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


def redrive(
    chosen: DeadLetterOptions,
    how: RedriveOptions,
    everything: Annotated[
        bool, typer.Option("--all", help="Take all dead letters; required if no filter is given.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show which dead letters would be taken, and which not.")
    ] = False,
    resume: Annotated[
        str | None, typer.Option(metavar="REDRIVE", help="Continue an interrupted redrive; takes no filter.")
    ] = None,
    spark: Annotated[
        str | None, typer.Option(metavar="URL", help="For --retransform: Spark Connect server, as for `deliver`.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Deliver dead letters again, in this process, in batches of kind `redrive`.

    The requests are sent unchanged, with the same delivery ids; age and attempts count from now. A delivery that fails
    is retried according to the rule's retry policy, or becomes a new dead letter.
    """
    from eventbridge.control.consecutive_batches import deliver_redrive
    from eventbridge.dead_letters.redrive_plan import begin_redrive, refuse_rate, survey, survey_of
    from eventbridge.dead_letters.redrives import Marks, find_redrive

    if resume is None and not chosen.is_given and not everything:
        raise UserError("no filter given. Use a filter such as --rule or --reason, or --all")
    if (chosen.is_given or everything) and (resume is not None or (everything and chosen.is_given)):
        raise UserError("--resume and --all take no filter. Leave the other options out")
    if resume is not None and (dry_run or how != RedriveOptions()):
        raise UserError("--resume continues a redrive with the options it began with. Leave the other options out")
    refuse_rate(how.rate)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    with (
        Interrupts() as interrupts,
        open_runtime(expects_ledger=True, is_action=not dry_run) as runtime,
        ExitStack() as stack,
    ):
        selection = chosen.selection(runtime.clock())
        refuse_unknown(runtime, chosen.rule, chosen.target)
        if dry_run:
            found = survey(runtime, selection, retransform=how.retransform, again=how.again)
            _show_survey(found, as_json=as_json)
            warn_about_damage(found.damaged)
            return
        if resume is not None:
            request = find_redrive(runtime, resume)
        else:
            run = f"command {uuid.uuid4()}"
            request = begin_redrive(runtime, selection, run, **vars(how))
            note(f"redrive {request.redrive_id}; `eventbridge dead-letters cancel {request.redrive_id[:8]}` cancels it")
        stack.enter_context(_exclusive(runtime, request))
        interrupts.begin()
        router = _router(runtime, request, spark, stack, interrupts)
        batches = deliver_redrive(runtime, request.redrive_id, router, interrupts.stop)
        request = runtime.ledger.redrives.get(request.redrive_id)
        marks = Marks(runtime)
        counts, damaged = marks.counts(request), marks.damaged
        if request.state == "done":
            left = survey_of(runtime, request)
            damaged |= left.damaged
            _note_skipped(left)
    _show_end(request, batches, counts, as_json=as_json)
    if interrupts.exit_code:
        raise typer.Exit(interrupts.exit_code)
    warn_about_damage(damaged)


def list_redrives(as_json: JsonOption = False) -> None:
    """List redrives, the newest first, with the results of their deliveries."""
    from eventbridge.dead_letters.redrives import Marks, redrive_document

    with open_runtime(expects_ledger=True) as runtime:
        marks = Marks(runtime)
        found = [(each, marks.counts(each)) for each in runtime.ledger.redrives.all()]
    if as_json:
        show_json([redrive_document(each, counts) for each, counts in found])
    else:
        _show_redrives(found)
    warn_about_damage(marks.damaged)


def _show_redrives(redrives_with_outcomes: Sequence[tuple[Redrive, Counter[str]]]) -> None:
    show_table(
        "Redrives, times in UTC",
        ["redrive", "state", "started", "ended", "filter", "taken", "result"],
        [
            [r.redrive_id, r.state, r.started_at, r.ended_at, _filter_text(r), counts.total(), _counts_text(counts)]
            for r, counts in redrives_with_outcomes
        ],
        ids={"redrive"},
    )


def cancel(
    redrive_id: Annotated[str, typer.Argument(metavar="REDRIVE", help="Id of a redrive, or its beginning.")],
    as_json: JsonOption = False,
) -> None:
    """Cancel a redrive: it plans no further batch; its current batch is finished."""
    from eventbridge.dead_letters.redrives import find_redrive

    with open_runtime(expects_ledger=True, is_action=True) as runtime:
        found = find_redrive(runtime, redrive_id)
        cancelled = runtime.ledger.redrives.end(found.redrive_id, "cancelled")
        found = runtime.ledger.redrives.get(found.redrive_id)
    if as_json:
        show_json({"redrive_id": found.redrive_id, "state": found.state, "cancelled": cancelled})
    elif cancelled:
        print_line(f"{found.redrive_id} is cancelled; the dead letters that it did not take stay as they are")
    else:
        print_line(f"{found.redrive_id} has ended already: {found.state}")


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


def _show_end(request: Redrive, batches: int, counts: Counter[str], *, as_json: bool) -> None:
    from eventbridge.dead_letters.redrives import redrive_document

    if as_json:
        show_json(redrive_document(request, counts))
        return
    print_line(
        f"{request.state}: {plural(batches, 'batch', 'batches')}, "
        f"{plural(counts.total(), 'dead letter', 'dead letters')} taken: {_counts_text(counts) or 'none'}"
    )
    if counts["pending"]:
        note("the DAG eventbridge_retry_deliveries or `eventbridge deliver` tries the pending deliveries again")


def _note_skipped(survey: Survey) -> None:
    for (of, why), count in sorted(survey.left.items()):
        note(f"{plural(count, 'dead letter', 'dead letters')} of {of} {'was' if count == 1 else 'were'} skipped: {why}")


def _show_survey(survey: Survey, *, as_json: bool) -> None:
    from eventbridge.dead_letters.redrives import survey_document

    document = survey_document(survey)
    if as_json:
        show_json(document)
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


def _counts_text(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(counts.items()))


def _filter_text(request: Redrive) -> str:
    parts = [
        f"{key} {', '.join(value) if isinstance(value, list) else value}" for key, value in request.selection.items()
    ]
    options = [name for name, is_set in (("retransform", request.retransform), ("again", request.again)) if is_set]
    rate = [] if request.rate is None else [f"{request.rate:g}/s"]
    return "; ".join([*(parts or ["all"]), *rate, *options])
