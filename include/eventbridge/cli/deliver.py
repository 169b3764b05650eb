"""Defines the command `deliver`, which runs all stages in this process, without Airflow, for development and tests."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from eventbridge.cli.interrupt import Interrupts
from eventbridge.cli.output import JsonOption, cell_text, note, plural, print_line, show_document
from eventbridge.cli.progress import log_warnings, shown_progress
from eventbridge.cli.runtime import open_runtime
from eventbridge.errors import InfrastructureError, OperatorError, UserError
from eventbridge.files import open_private

if TYPE_CHECKING:
    from eventbridge.config.settings import Settings
    from eventbridge.pipeline.deliver import Idle
    from eventbridge.runtime.runtime import Runtime

#: The time that `deliver` waits for retries before it counts as idle. A first retry is due one second after the
#: failure, rounded up.
SOON_SECONDS = 3.0
#: The maximum time that a process that takes over waits for the running process to close its batch. Closing takes less.
TAKE_OVER_SECONDS = 60.0


def deliver(
    runner: Annotated[
        str, typer.Option(metavar="NAME", help="The runner; by default, each bus has one of the same name.")
    ],
    until_idle: Annotated[
        bool,
        typer.Option(
            "--until-idle", help="Exit when no event is available and no retry is due; give this or --streaming."
        ),
    ] = False,
    wait: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="Wait for retries that become due within SECONDS seconds."),
    ] = SOON_SECONDS,
    spark: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Spark Connect server, sc://host:port; default: EVENTBRIDGE_SPARK_REMOTE,"
            " otherwise the command starts one, which takes about 15 s.",
        ),
    ] = None,
    streaming: Annotated[
        bool,
        typer.Option("--streaming", help="Deliver events as they arrive, in milliseconds, until Ctrl-C or SIGTERM."),
    ] = False,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="With --streaming: take the runner over from the process that delivers its events, after its batch.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Deliver a runner's events through the same stages as the DAGs, until idle; with --streaming as they arrive.

    Failed deliveries stay pending in the ledger, and a later run tries them again when they are due.
    """
    if streaming:
        if until_idle or spark is not None:
            raise typer.BadParameter(
                "--streaming runs until you stop it, and needs no Spark: leave out --until-idle and --spark"
            )
        _deliver_streaming(runner, take_over=take_over, as_json=as_json)
        return
    if take_over:
        raise typer.BadParameter("--take-over needs --streaming: without it no process has a lease to take over")
    if not until_idle:
        raise typer.BadParameter("give --until-idle or --streaming; only Airflow delivers batches continuously")
    from eventbridge.pipeline.deliver import deliver_until_idle
    from eventbridge.rules.find import find_runner
    from eventbridge.spark.environment import spark_home
    from eventbridge.spark.route import ConnectRouter

    log_warnings()
    spark_home()  # without Spark nothing is routed, and the matcher would be compiled for minutes before the error
    with Interrupts() as interrupts, open_runtime() as runtime, ExitStack() as stack:
        find_runner(runtime.rule_set(), runner)
        stack.enter_context(
            exclusive(runtime.settings, f"deliver.{runner}", f"`eventbridge deliver` for runner {runner!r}")
        )
        url = spark_url(runtime.settings, spark, stack)
        router = ConnectRouter(url, store=runtime.store, is_stopped=interrupts.ends_spark)
        interrupts.begin()
        with shown_progress("delivering", "batches") as progress:
            idle = deliver_until_idle(
                runtime, runner, router, wait_seconds=wait, stop=interrupts.stop, progress=progress
            )
        stopped = runtime.ledger.ingestion.current_stop()
    if as_json:
        show_document(idle)
    else:
        _show_idle(runner, idle, is_interrupted=bool(interrupts.exit_code), is_stopped=stopped is not None)
    if interrupts.exit_code:
        raise typer.Exit(interrupts.exit_code)
    if stopped is not None:
        since = cell_text(stopped.since)
        raise OperatorError(
            f"No new batch has been planned since {since} UTC, although events may wait on the bus: {stopped.reason}."
        )


def _show_idle(runner: str, idle: Idle, *, is_interrupted: bool, is_stopped: bool) -> None:
    batches = plural(idle.batches, "batch", "batches")
    retries = plural(idle.retry_batches, "retry batch", "retry batches")
    print_line(f"{batches} and {retries} of runner {runner} committed.")
    _print_pending(idle.pending, idle.on_hold)
    if idle.next_due_at is not None:
        print_line(f"The next pending delivery is due at {cell_text(idle.next_due_at)} UTC.")
    if is_interrupted:
        print_line("Interrupted: run the command again to continue.")
    elif not idle.pending and not is_stopped:
        print_line("No delivery is pending.")


def _deliver_streaming(runner: str, *, take_over: bool, as_json: bool) -> None:
    from eventbridge.matching.scan.progress import telling_progress
    from eventbridge.pipeline.deliver import pending_deliveries
    from eventbridge.routing.warm_up import compile_ahead
    from eventbridge.rules.find import find_runner
    from eventbridge.streaming.lease import Bounds
    from eventbridge.streaming.task import deliver_streaming

    log_warnings()
    with Interrupts() as interrupts, open_runtime() as runtime, ExitStack() as stack:
        find_runner(runtime.rule_set(), runner)
        if not take_over:
            what = f"`eventbridge deliver` for runner {runner!r}"
            stack.enter_context(exclusive(runtime.settings, f"deliver.{runner}", what))
        interrupts.begin()
        if take_over:
            _print_taken_over(runtime, runner)
        note("loading the matcher")
        with telling_progress(note):
            compile_ahead()
        begun = f"delivering the events of runner {runner!r} as they arrive; Ctrl-C stops it"
        patience = TAKE_OVER_SECONDS if take_over else 0.0
        bounds = Bounds(is_standby=take_over, patience_seconds=patience, on_begin=lambda: note(begun))
        summary = deliver_streaming(runtime, runner, interrupts.stop, bounds)
        pending, on_hold = pending_deliveries(runtime, runner)
    if as_json:
        show_document(asdict(summary) | {"pending": pending, "on_hold": on_hold})
    else:
        events, batches = plural(summary.events, "event", "events"), plural(summary.batches, "batch", "batches")
        print_line(f"{events} of runner {runner} in {batches} committed. Later events wait for the next process.")
        _print_pending(pending, on_hold)
    if interrupts.exit_code:
        raise typer.Exit(interrupts.exit_code)


def _print_pending(pending: int, on_hold: int) -> None:
    """Print the number of pending deliveries, if there are any."""
    if pending:
        are = "is" if pending == 1 else "are"
        of_them = f", of which {on_hold} {'is' if on_hold == 1 else 'are'} on hold" if on_hold else ""
        print_line(
            f"{plural(pending, 'delivery', 'deliveries')} {are} pending{of_them}; a later run sends those that are due."
        )


def _print_taken_over(runtime: Runtime, runner: str) -> None:
    """Print from which process the runner is taken over, and what may be sent twice."""
    from eventbridge.views.status import pushes_at_work, streaming_process

    if process := streaming_process(runtime, runner):
        note(
            f"process {process} is delivering the events of runner {runner!r}: taking over after its batch, within "
            f"{TAKE_OVER_SECONDS:.0f} s. Nothing is sent twice, unless that process is suspended: then its requests in "
            "flight are sent again"
        )
    if found := pushes_at_work(runtime, runner):
        batch_id, workers = found
        note(
            f"batch {batch_id} of runner {runner!r} is being sent by {' and '.join(workers)}: the chunks in progress "
            "are finished there, and this process delivers the rest. Nothing is sent twice, unless the sender is "
            "suspended: then its requests in flight are sent again"
        )


def spark_url(settings: Settings, url: str | None, stack: ExitStack) -> str:
    """Return the Spark Connect address in `url` or the settings, or that of a new server, which `stack` stops."""
    from eventbridge.matching.scan.progress import telling_progress
    from eventbridge.routing.warm_up import compile_ahead
    from eventbridge.spark.environment import TOKEN
    from eventbridge.spark.server import SparkConnectServer
    from eventbridge.spark.session import redact_address, with_token

    if url is not None and ("token=" in url or "@" in url):
        raise UserError(
            f"Other users of this machine can see --spark. Put the token into the variable {TOKEN} instead."
        )
    url = url or settings.spark_remote
    if url is None:
        with telling_progress(note):  # compiles once, with progress, instead of silently in each of Spark's workers
            compile_ahead()
        note("starting a Spark Connect server; --spark sc://host:port uses a running one")
        return stack.enter_context(SparkConnectServer(settings.spark_folder)).url
    if not url.startswith("sc://"):
        raise UserError(f"{redact_address(url)!r} is not the address of a Spark Connect server. Write sc://host:port")
    return with_token(url, os.environ.get(TOKEN))


@contextmanager
def exclusive(settings: Settings, name: str, action: str) -> Iterator[None]:
    """Hold a lock that excludes a second command of this kind on this machine, because the second would only wait for
    the first.

    Raises InfrastructureError if another process has the lock.
    """
    with os.fdopen(open_private(settings.home / f"{name}.lock", os.O_RDWR), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InfrastructureError(f"another {action} is running on this machine. Wait until it ends") from None
        yield
