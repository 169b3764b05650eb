"""Defines the command group `replays`, which redelivers archived events and manages replays."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventbridge.cli.interrupt import Interrupts
from eventbridge.cli.options import LandedBefore, LandedSince, refuse_empty, takes_records
from eventbridge.cli.output import (
    JsonOption,
    counts_text,
    end_text,
    note,
    plural,
    print_line,
    selection_text,
    show_document,
    show_table,
)
from eventbridge.cli.progress import log_warnings, shown_progress
from eventbridge.cli.runtime import open_runtime
from eventbridge.cli.suggestion import Group
from eventbridge.errors import UserError

if TYPE_CHECKING:
    from eventbridge.model.redelivery import Replay
    from eventbridge.replay.account import ReplayAccount
    from eventbridge.replay.request import WrittenReplayRequest
    from eventbridge.replay.survey import ReplaySurvey
    from eventbridge.runtime.runtime import Runtime


app = typer.Typer(cls=Group, help="Deliver archived events again; manage replays.", no_args_is_help=True)

ReplayArgument = Annotated[str, typer.Argument(metavar="REPLAY", help="Id of a replay, or its beginning.")]
SparkOption = Annotated[
    str | None, typer.Option("--spark", metavar="URL", help="Spark Connect server, as for `deliver`.")
]


@dataclass(frozen=True)
class ReplayOptions:
    """The options of a replay: which archived events to deliver, to which targets, and how."""

    since: LandedSince
    until: LandedBefore = None
    rules: Annotated[
        list[str] | None, typer.Option("--rule", metavar="RULE", help="Only for this rule; repeatable.")
    ] = None
    targets: Annotated[
        list[str] | None,
        typer.Option("--target", metavar="TARGET", help="Only to targets with this name; repeatable."),
    ] = None
    pattern: Annotated[
        str | None, typer.Option("--pattern", metavar="JSON", help="Only events that this filter pattern matches.")
    ] = None
    sql: Annotated[
        str | None,
        typer.Option(
            metavar="CONDITION",
            help="Only events that meet a DuckDB SQL condition on the event and on the status of its delivery.",
        ),
    ] = None
    as_of: Annotated[
        str,
        typer.Option(
            "--rules", metavar="current|original", help="Use the current rules, or those that routed the events."
        ),
    ] = "current"
    new_ids: Annotated[
        bool, typer.Option("--new-ids/--same-ids", help="Use new delivery ids, or the original ones.")
    ] = True
    skip_delivered: Annotated[
        bool, typer.Option("--skip-delivered", help="Skip events that the target has already received.")
    ] = False
    rate: Annotated[
        float | None,
        typer.Option(metavar="N", help="Maximum number of deliveries per second, 0.1 or more; default: no limit."),
    ] = None

    def written_request(self, bus: str) -> WrittenReplayRequest:
        """Return the request for a bus. Raises UserError for a blank option."""
        from eventbridge.replay.request import WrittenReplayRequest

        named = {"from": self.since, "to": self.until, "rule": self.rules, "target": self.targets}
        refuse_empty(named | {"pattern": self.pattern, "sql": self.sql})
        return WrittenReplayRequest(bus, **vars(self) | {"rules": self.rules or (), "targets": self.targets or ()})


@app.command("start", short_help="Replay archived events of a bus.")
@takes_records
def start(
    bus: Annotated[str, typer.Argument(metavar="BUS", help="The bus whose archive is replayed.")],
    options: ReplayOptions,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show which events would be taken, with samples.")
    ] = False,
    spark: SparkOption = None,
    as_json: JsonOption = False,
) -> None:
    """Deliver archived events again, in this process, in batches of kind `replay`.

    Age and attempts count from now. A delivery that fails is retried according to the rule's retry policy, or becomes a
    dead letter.
    """
    from eventbridge.replay.plan import begin_replay

    log_warnings()
    with open_runtime(expects_ledger=dry_run, is_action=not dry_run) as runtime:
        request = options.written_request(bus).read(runtime.ledger.now(), runtime.rule_set())
        if dry_run:
            from eventbridge.replay.survey import survey

            with shown_progress("searching", "archived events") as progress:
                found = survey(runtime, request, progress=progress)
            _show_survey(found, as_json=as_json)
            return
        begun = begin_replay(runtime, request, f"command {uuid.uuid4()}")
        note(f"replay {begun.replay_id}; `eventbridge replays pause|cancel {begun.replay_id[:8]}` stops it")
        _deliver(runtime, begun, spark, as_json=as_json)


@app.command("list", short_help="List replays with their results.")
def list_replays(as_json: JsonOption = False) -> None:
    """List replays, the newest first, with the results of their deliveries."""
    from eventbridge.replay.account import account_of

    with open_runtime(expects_ledger=True) as runtime:
        found = [(each, account_of(runtime, each)) for each in runtime.ledger.replays.all()]
    if as_json:
        show_document([_document(each, account) for each, account in found])
        return
    show_table(
        "Replays, times in UTC",
        ["replay", "state", "bus", "from", "to", "filter", "taken", "result"],
        [
            [
                r.replay_id,
                r.state,
                r.bus,
                r.since,
                r.until,
                _filter_text(r),
                account.taken,
                counts_text(account.outcomes),
            ]
            for r, account in found
        ],
        ids={"replay"},
    )


@app.command("show", short_help="Show the options, progress and results of a replay.")
def show(replay_id: ReplayArgument, as_json: JsonOption = False) -> None:
    """Show one replay: its options, its progress, and the results of its deliveries."""
    from eventbridge.replay.account import account_of

    with open_runtime(expects_ledger=True) as runtime:
        found = find_replay(runtime, replay_id)
        account = account_of(runtime, found)
    if as_json:
        show_document(_document(found, account))
        return
    for name, value in _document(found, account).items():
        if value not in (None, "", {}):
            print_line(f"{name:<16}{counts_text(value) if name == 'outcomes' else value}")


@app.command("pause", short_help="Pause a replay after its current batch.")
def pause(replay_id: ReplayArgument, as_json: JsonOption = False) -> None:
    """Pause a replay: it plans no further batch until you resume it; its current batch is finished."""
    from eventbridge.control.consecutive_batches import pause_replay

    with open_runtime(expects_ledger=True, is_action=True) as runtime:
        found = find_replay(runtime, replay_id)
        changed = pause_replay(runtime, found.replay_id)
        found = runtime.ledger.replays.get(found.replay_id)
    _show_changed(found, "paused. It plans no further batch until you resume it", changed=changed, as_json=as_json)


@app.command("resume", short_help="Continue a replay that is paused or whose command died.")
def resume(replay_id: ReplayArgument, spark: SparkOption = None, as_json: JsonOption = False) -> None:
    """Continue a paused replay, or one whose command died, in this process until it ends.

    In Airflow, trigger `eventbridge_replay_events` with *Replay id* instead.
    """
    from eventbridge.control.consecutive_batches import resume_replay

    log_warnings()
    with open_runtime(is_action=True) as runtime:
        found = find_replay(runtime, replay_id)
        if found.state == "cancelled" and not runtime.ledger.replays.open_batches(found.replay_id):
            raise UserError(
                f"replay {found.replay_id} is cancelled, and none of its batches is in progress: there is nothing to "
                f"continue. `eventbridge replays start {found.bus} --from TIME` starts a new one"
            )
        resume_replay(runtime, found.replay_id)
        _deliver(runtime, found, spark, as_json=as_json)


@app.command("cancel", short_help="Cancel a replay after its current batch.")
def cancel(replay_id: ReplayArgument, as_json: JsonOption = False) -> None:
    """Cancel a replay: it plans no further batch; its current batch is finished."""
    from eventbridge.control.consecutive_batches import cancel_replay

    with open_runtime(expects_ledger=True, is_action=True) as runtime:
        found = find_replay(runtime, replay_id)
        changed = cancel_replay(runtime, found.replay_id)
        found = runtime.ledger.replays.get(found.replay_id)
        open_batches = runtime.ledger.replays.open_batches(found.replay_id)
    _show_changed(found, "cancelled. It plans no further batch", changed=changed, as_json=as_json)
    for batch in open_batches:
        note(
            f"its batch {batch.batch_id} is in progress and will be finished. "
            f"If its process died, `eventbridge replays resume {found.replay_id[:8]}` finishes that batch only"
        )


def _deliver(runtime: Runtime, request: Replay, spark: str | None, *, as_json: bool) -> None:
    from eventbridge.cli.deliver import exclusive, spark_url
    from eventbridge.control.consecutive_batches import deliver_replay
    from eventbridge.replay.account import account_of
    from eventbridge.spark.route import ConnectRouter

    with Interrupts() as interrupts, ExitStack() as stack:
        stack.enter_context(
            exclusive(runtime.settings, f"replay.{request.replay_id}", f"command for replay {request.replay_id}")
        )
        url = spark_url(runtime.settings, spark, stack)
        router = ConnectRouter(url, store=runtime.store, is_stopped=interrupts.ends_spark)
        interrupts.begin()
        with shown_progress("replaying", "archived events") as progress:
            deliver_replay(runtime, request.replay_id, router, interrupts.stop, progress)
        request = runtime.ledger.replays.get(request.replay_id)
        account = account_of(runtime, request)
    if as_json:
        show_document(_document(request, account))
    else:
        taken = plural(account.taken, "event", "events")
        print_line(end_text("replay", request.replay_id, request.state, taken, account.outcomes))
    if interrupts.exit_code:
        raise typer.Exit(interrupts.exit_code)


def _document(request: Replay, account: ReplayAccount) -> dict[str, Any]:
    from eventbridge.replay.account import replay_fields

    return replay_fields(request, account)


def find_replay(runtime: Runtime, name: str) -> Replay:
    """Return the replay whose id begins with `name`. Raises NotFoundError if there is none, or several."""
    from eventbridge.replay.account import find_replay as found_by

    return found_by(runtime, name)


def _show_changed(replay: Replay, state: str, *, changed: bool, as_json: bool) -> None:
    if as_json:
        show_document({"replay_id": replay.replay_id, "state": replay.state, "changed": changed})
    else:
        print_line(f"Replay {replay.replay_id} {state if changed else f'stays {replay.state}'}.")


def _show_survey(survey: ReplaySurvey, *, as_json: bool) -> None:
    if as_json:
        show_document(survey)
        return
    print_line(f"{plural(survey.read, 'archived event', 'archived events')} read, {survey.taken:,} would be taken")
    show_table(
        "Would be delivered",
        ["rule/target", "deliveries", "first events"],
        [[of, count, ", ".join(survey.samples[of])] for of, count in sorted(survey.deliveries.items())],
    )


def _filter_text(request: Replay) -> str:
    selection = {key: value for key, value in request.selection.items() if (key, value) != ("as_of", "current")}
    options = {"same ids": not request.new_ids, "skip delivered": request.skip_delivered}
    return selection_text(selection, request.rate, options)
