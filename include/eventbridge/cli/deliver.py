"""`eventbridge deliver`: all stages in this process, without Airflow; for development and tests."""

from __future__ import annotations

import logging
import signal
import threading
from contextlib import ExitStack
from typing import Annotated

import typer

from eventbridge.cli.output import JsonOption, show_json
from eventbridge.cli.workplace import workplace
from eventbridge.errors import NotFoundError
from eventbridge.spark.route import ConnectRouter
from eventbridge.spark.server import SparkConnectServer
from eventbridge.stages.deliver import deliver_until_idle


def deliver(
    runner: Annotated[str, typer.Option(help="Runner to deliver for.")],
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Required: ends once nothing is available or due.")
    ] = False,
    wait: Annotated[float, typer.Option(help="Also wait for what falls due within so many seconds.")] = 0.0,
    spark: Annotated[
        str | None, typer.Option(help="Spark Connect server, sc://host:port; default: a local one is started.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Deliver a runner's events through the same stages as the DAGs, until idle."""
    if not until_idle:
        raise typer.BadParameter("only --until-idle is in this version; Airflow delivers continuously")
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    stop = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    with workplace() as work, ExitStack() as stack:
        runners = work.rule_set().runners()
        if runner not in runners:
            raise NotFoundError(f"no rule has the runner {runner!r}. Runners: {', '.join(sorted(runners)) or 'none'}")
        url = spark or work.settings.spark_remote
        if url is None:
            url = stack.enter_context(SparkConnectServer()).url
        idle = deliver_until_idle(work, runner, ConnectRouter(url), wait_seconds=wait, stop=stop)
    if as_json:
        show_json(idle)
        return
    typer.echo(f"idle: {idle.batches} batches and {idle.retry_batches} retry batches committed")
    if idle.next_due_at is not None:
        typer.echo(f"the next parked delivery is due at {idle.next_due_at:%Y-%m-%d %H:%M:%S} UTC")
