"""Old and live work on one Spark Connect server: shares of task slots and CPU."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec import structs

from eventbridge.processes import OLD_NICENESS
from eventbridge.routing.job import RouteJob
from eventbridge.spark.route import ConnectRouter
from eventbridge.spark.server import SparkConnectServer
from eventbridge.testing.busy import SliceRun, noted, route_and_note


def test_old_work_holds_half_of_the_slots_while_live_work_waits(
    spark_server: SparkConnectServer, land: Callable[..., Any]
) -> None:
    """Two old jobs start first and take all slots; once a live job starts, they share one of two.

    Their workers also have a lower CPU priority.
    """
    landed = land(count=240, step=10)
    router = ConnectRouter(spark_server.url, route_and_note)
    live = structs.replace(landed.job, runner="orders", attempt="live")
    old = [structs.replace(landed.job, runner=name, attempt=name, old=True) for name in ("replay", "backtest")]

    def route(job: RouteJob) -> list[Any]:
        return list(router.route_slices(job, landed.slices))

    for job in (live, *old):  # its workers are warm
        list(router.route_slices(structs.replace(job, attempt=f"{job.attempt} warm"), landed.slices[:2]))
    with ThreadPoolExecutor() as threads:
        asked = [threads.submit(route, job) for job in old]
        while not all(noted(landed.store, job) for job in old[:1]):
            pass
        assert len(route(live)) == 24
        assert [len(each.result()) for each in asked] == [24, 24]

    of_live, of_old = noted(landed.store, live), [ran for job in old for ran in noted(landed.store, job)]
    waiting = SliceRun(of_live[0].began, of_live[-1].began)
    meanwhile = [ran for ran in of_old if waiting.began < ran.began < waiting.ended]
    assert max_at_once(of_old) == 2
    assert max_at_once(meanwhile) == 1
    assert len(meanwhile) > 2  # and it continues, as fast as its priority lets it on a busy machine
    usual = {ran.niceness for ran in of_live}
    assert {ran.niceness for ran in of_old} == {min(19, niceness + OLD_NICENESS) for niceness in usual}


def max_at_once(all_ran: list[SliceRun]) -> int:
    """Return how many ran at the same time at most."""
    changes = sorted([(ran.ended, -1) for ran in all_ran] + [(ran.began, 1) for ran in all_ran])
    running = [sum(change for _, change in changes[: index + 1]) for index in range(len(changes))]
    return max(running, default=0)
