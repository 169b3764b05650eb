"""The DAGs of the DAG files: ids, shape, trigger rules, policy."""

from __future__ import annotations

import os
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from airflow.sdk import DAG, TriggerRule
from airflow.sdk.definitions.context import _AIRFLOW_PARSING_CONTEXT_DAG_ID, _AIRFLOW_PARSING_CONTEXT_TASK_ID
from airflow.sdk.definitions.timetables.assets import AssetTriggeredTimetable
from airflow.sdk.exceptions import DownstreamTasksSkipped
from airflow.serialization.serialized_objects import DagSerialization
from orchestration.dag_files import ALWAYS_PRESENT, TRIALS, edges, of_batches

from eventbridge.airflow.dags import airflow_dags
from eventbridge.airflow.schedule import fallback_cron
from eventbridge.airflow.tasks import end_run, give_way, give_way_as_old
from eventbridge.config.settings import Settings
from eventbridge.ledger import Ledger


def test_each_runner_has_a_dag_and_retries_have_one(dags: dict[str, DAG]) -> None:
    """The DAG ids are those of the runners in the rule files, and those of every installation."""
    assert {"eventbridge_deliver_orders", "eventbridge_deliver_night"} | ALWAYS_PRESENT == set(dags)


def test_the_package_defines_the_same_dags(dags: dict[str, DAG]) -> None:
    """One file in another Airflow's DAGs folder defines the same DAGs as the DAG files of a checkout."""
    assert {name: edges(dag) for name, dag in dags.items()} == {
        name: edges(dag) for name, dag in airflow_dags().items()
    }


def test_a_batch_goes_through_the_stages_in_order(dags: dict[str, DAG]) -> None:
    """The upstream tasks of commit are route, write_dead_letters and schedule_retries, not push."""
    expected = {
        ("listen", "buffer"),
        ("buffer", "route"),
        ("route", "push"),
        ("push", "write_dead_letters"),
        ("write_dead_letters", "schedule_retries"),
        ("route", "commit"),
        ("write_dead_letters", "commit"),
        ("schedule_retries", "commit"),
    }

    assert expected == edges(dags["eventbridge_deliver_orders"])


def test_a_runner_in_streaming_mode_begins_with_a_streaming_task(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task `streaming` replaces `listen`. Its run may take longer by one streaming task, and a retry starts soon.

    If streaming tasks could take every slot, the DAG's documentation has a warning.
    """
    with (Path(os.environ["EVENTBRIDGE_RULES_FOLDER"]) / "runners.yaml").open("w") as file:
        file.write("runners:\n  orders: {mode: streaming, streaming: {task_duration: 5m}}\n")
    dag = airflow_dags()["eventbridge_deliver_orders"]
    in_batch_mode = airflow_dags()["eventbridge_deliver_night"]
    first = dag.get_task("streaming")

    assert edges(dag) == {
        tuple("streaming" if name == "listen" else name for name in each) for each in edges(in_batch_mode)
    }
    assert dag.dagrun_timeout == timedelta(seconds=500)
    assert (dag.max_active_runs, in_batch_mode.max_active_runs) == (
        3,
        1,
    )  # one is the standby, one may have died unseen
    assert (first.retries, first.retry_delay) == (3, timedelta(milliseconds=100))
    monkeypatch.setenv("AIRFLOW__CORE__PARALLELISM", "1")
    assert "1 runner is in streaming mode, and core.parallelism" in str(
        airflow_dags()["eventbridge_deliver_orders"].doc_md
    )
    assert "parallelism" not in str(dag.doc_md)


def test_a_task_of_a_streaming_run_defines_its_own_dag(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process reads no rule file: the task id `streaming` is enough; the other tasks find their batch either
    way.
    """
    monkeypatch.setenv(_AIRFLOW_PARSING_CONTEXT_DAG_ID, "eventbridge_deliver_orders")
    monkeypatch.setenv(_AIRFLOW_PARSING_CONTEXT_TASK_ID, "streaming")

    assert "streaming" in airflow_dags()["eventbridge_deliver_orders"].task_ids
    monkeypatch.setenv(_AIRFLOW_PARSING_CONTEXT_TASK_ID, "buffer")
    buffer = airflow_dags()["eventbridge_deliver_orders"].get_task("buffer")
    for first in ("listen", "streaming"):
        assert first in str(buffer.op_args)


def test_a_retry_batch_goes_through_the_stages_from_route_on(dags: dict[str, DAG]) -> None:
    """A retry batch is planned, routed, pushed, settled and committed; other tasks process the work of dead runs."""
    expected = {
        ("plan_retries", "settle_stale"),
        ("plan_retries", "resume_replay"),
        ("plan_retries", "begin_redrive"),
        ("plan_retries", "route"),
        ("route", "push"),
        ("push", "write_dead_letters"),
        ("write_dead_letters", "schedule_retries"),
        ("route", "commit"),
        ("write_dead_letters", "commit"),
        ("schedule_retries", "commit"),
    }

    assert expected == edges(dags["eventbridge_retry_deliveries"])


def test_a_redrive_batch_goes_through_the_stages_and_triggers_the_next(dags: dict[str, DAG]) -> None:
    """A run processes one batch, then triggers another run if dead letters are left; it has no schedule."""
    redrive = dags["eventbridge_redrive_dead_letters"]
    expected = {edge for edge in edges(dags["eventbridge_retry_deliveries"]) if "plan_retries" not in edge}

    assert edges(redrive) == expected | {("plan_redrive", "route"), ("commit", "trigger_next_run")}
    assert (redrive.max_active_runs, redrive.dagrun_timeout) == (1, timedelta(seconds=200))
    assert redrive.schedule is None


def test_a_replay_batch_goes_through_the_stages_and_triggers_the_next(dags: dict[str, DAG]) -> None:
    """Like a redrive, but up to four replays at once, and their pushes have the lowest weights."""
    replay = dags["eventbridge_replay_events"]
    expected = {edge for edge in edges(dags["eventbridge_retry_deliveries"]) if "plan_retries" not in edge}
    push = replay.get_task("push")

    assert edges(replay) == expected | {("plan_replay", "route"), ("commit", "trigger_next_run")}
    assert (replay.max_active_runs, replay.dagrun_timeout, replay.schedule) == (4, timedelta(seconds=200), None)
    assert (push.priority_weight, push.pool) == (-400, "eventbridge.replay")


def test_hours_of_archive_are_replayed_only_by_backfill(dags: dict[str, DAG]) -> None:
    """A backfill creates a run per hour; the scheduler creates none; the form has no times."""
    archive = dags["eventbridge_replay_archive"]
    schedule = DagSerialization.from_dict(DagSerialization.to_dict(archive))
    hours = schedule.iter_dagrun_infos_between(
        datetime(2026, 9, 1, 8, tzinfo=UTC), datetime(2026, 9, 1, 10, tzinfo=UTC)
    )

    assert [(info.data_interval.start.hour, info.data_interval.end.hour) for info in hours] == [
        (8, 9),
        (9, 10),
        (10, 11),
    ]
    assert schedule.timetable.periodic
    assert schedule.next_dagrun_info(last_automated_run_info=None) is None
    assert archive.allowed_run_types == {"scheduled", "backfill", "manual"}
    assert edges(archive) == {("begin_replay", "wait_for_replay")}
    assert set(archive.params) == set(dags["eventbridge_replay_events"].params) - {"from", "to", "replay_id"}
    archive.params.validate()


def test_each_hour_is_checked_after_its_end(dags: dict[str, DAG]) -> None:
    """One task, ten minutes past every hour, one run at a time; the form has a picker for another hour."""
    check = dags["eventbridge_check_quality"]

    assert check.task_ids == ["check_quality"]
    assert check.timetable.expression == "10 * * * *"  # type: ignore[attr-defined]
    assert (check.max_active_runs, check.catchup, check.dagrun_timeout) == (1, False, timedelta(seconds=200))
    assert check.params.get_param("hour").schema["format"] == "date-time"
    check.params.validate()


def test_a_batch_is_settled_even_if_pushes_fail(dags: dict[str, DAG]) -> None:
    """Settling tasks run once all upstream tasks are done, commit if none of them failed, the others on success."""
    for dag in of_batches(dags):
        rules = {task.task_id: task.trigger_rule for task in dag.tasks}
        late = {
            "write_dead_letters",
            "schedule_retries",
            "settle_stale",
            "resume_replay",
            "begin_redrive",
        } & rules.keys()
        settling = dict.fromkeys(late, TriggerRule.ALL_DONE)
        after = dict.fromkeys({"commit", "trigger_next_run"} & rules.keys(), TriggerRule.NONE_FAILED)
        expected = dict.fromkeys(rules, TriggerRule.ALL_SUCCESS) | settling | after

        assert expected == rules


def test_a_run_that_waits_skips_all_tasks_but_the_one_that_continues(dags: dict[str, DAG]) -> None:
    """If the next batch of a replay or redrive cannot be planned yet, two tasks run instead of seven."""
    for dag, first in (
        (dags["eventbridge_replay_events"], "plan_replay"),
        (dags["eventbridge_redrive_dead_letters"], "plan_redrive"),
    ):
        with pytest.raises(DownstreamTasksSkipped) as skipped:
            end_run({"task": dag.get_task(first)}, but="trigger_next_run")

        assert set(skipped.value.tasks) == set(dag.task_ids) - {first, "trigger_next_run"}
        assert len(skipped.value.tasks) == 5


def test_only_push_is_mapped_and_only_push_is_never_retried(dags: dict[str, DAG]) -> None:
    """Airflow retries stages three times, pushes never: the settlement makes their undelivered deliveries pending."""
    for dag in dags.values():
        for task in dag.tasks:
            assert (task.task_id == "push") == task.is_mapped
            assert (0 if task.task_id == "push" else 3) == task.retries
            assert (None if task.task_id == "push" else timedelta(seconds=5)) in (None, task.retry_delay)


def test_tasks_of_the_slow_lane_have_a_lower_cpu_priority(dags: dict[str, DAG]) -> None:
    """Only tasks of retries, old work, retention and quality checks lower their priority before they begin."""
    for dag in dags.values():
        hooks = [
            task.partial_kwargs.get("pre_execute") if task.is_mapped else task._pre_execute_hook for task in dag.tasks
        ]
        slow = dag.dag_id in {
            "eventbridge_retry_deliveries",
            "eventbridge_redrive_dead_letters",
            "eventbridge_maintain_store",
        }
        old = (
            dag.dag_id
            in {"eventbridge_replay_events", "eventbridge_replay_archive", "eventbridge_check_quality"} | TRIALS
        )
        assert hooks == [give_way if slow else give_way_as_old if old else None] * len(dag.tasks)


def test_weights_are_absolute_and_stages_go_before_pushes(dags: dict[str, DAG]) -> None:
    """A stage weighs more than any push (at most 750); pushes of retries weigh less (below 100) and have their own
    pool.
    """
    for dag in dags.values():
        for task in dag.tasks:
            assert "absolute" in str(task.weight_rule)
            if task.task_id != "push":
                assert task.priority_weight == (-1_000 if dag.dag_id == "eventbridge_maintain_store" else 1_000)
    retry = dags["eventbridge_retry_deliveries"].get_task("push")

    assert (retry.priority_weight, retry.pool) == (-200, "eventbridge.retry")


def test_every_dag_has_an_owner_and_documentation(dags: dict[str, DAG]) -> None:
    """Each DAG has an owner, tags, documentation and a description; each task has an owner."""
    for dag in dags.values():
        assert "eventbridge" in dag.tags
        assert dag.doc_md
        assert dag.description
        assert {"eventbridge"} == {task.owner for task in dag.tasks}


def test_runs_are_bounded(dags: dict[str, DAG]) -> None:
    """One active run per runner, four of retries, no catch-up, and a timeout of all budgets plus a minute."""
    deliver, retry = dags["eventbridge_deliver_orders"], dags["eventbridge_retry_deliveries"]

    assert (deliver.max_active_runs, retry.max_active_runs) == (1, 4)
    assert (timedelta(seconds=200), timedelta(seconds=200)) == (deliver.dagrun_timeout, retry.dagrun_timeout)
    assert not deliver.catchup
    assert not retry.catchup


def test_retention_runs_every_hour_and_ends_in_time(dags: dict[str, DAG]) -> None:
    """One run at a time, with a timeout above its budget; missed hours are not repeated."""
    maintain = dags["eventbridge_maintain_store"]

    assert maintain.timetable.expression == "17 * * * *"  # type: ignore[attr-defined]
    assert (maintain.max_active_runs, maintain.catchup) == (1, False)
    assert maintain.dagrun_timeout == timedelta(seconds=600)


def test_only_the_archive_is_backfilled(dags: dict[str, DAG]) -> None:
    """A run of any other DAG is started by the watcher, a schedule, a person or another DAG, but not by a backfill."""
    for dag in (dag for name, dag in dags.items() if name != "eventbridge_replay_archive"):
        assert dag.allowed_run_types == {"scheduled", "asset_triggered", "manual", "operator_triggered"}


def test_a_run_starts_by_an_event_of_its_own_asset(dags: dict[str, DAG]) -> None:
    """Each DAG that processes batches, except redrives and replays, is scheduled by its asset, which has a watcher."""
    subjects = set()
    without_asset = ("eventbridge_redrive_dead_letters", "eventbridge_replay_events")
    for dag in (dag for dag in of_batches(dags) if dag.dag_id not in without_asset):
        assert isinstance(dag.timetable, AssetTriggeredTimetable)
        (asset,) = dag.timetable.asset_condition.objects  # type: ignore[attr-defined]
        (watcher,) = asset.watchers
        subjects.add(watcher.trigger.subject)
        assert asset.name == watcher.trigger.subject

    assert {"events_orders", "events_night", "due_deliveries"} == subjects


def test_the_fallback_runs_rarely_while_the_watcher_is_alive(home: Path, dags: dict[str, DAG]) -> None:
    """Every ten minutes, but each minute if the watcher has not polled for a minute, or has never polled."""
    home.mkdir(exist_ok=True)
    url = Settings(home=home).ledger_url
    with closing(Ledger.open(url)) as ledger:
        ledger.watcher.record_check()

    assert fallback_cron(url) == "*/10 * * * *"
    with closing(Ledger.open(url, lambda: datetime.now(UTC) - timedelta(seconds=61))) as ledger:
        ledger.watcher.record_check()
    assert fallback_cron(url) == "* * * * *"
    assert dags["eventbridge_start_waiting_runs"].timetable.expression == "* * * * *"  # type: ignore[attr-defined]


def test_reading_the_watchers_last_poll_creates_no_ledger(home: Path) -> None:
    """Airflow may parse DAG files before anything was delivered."""
    home.mkdir()

    assert fallback_cron(Settings(home=home).ledger_url) == "* * * * *"
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("dag_id", ["eventbridge_deliver_orders", "eventbridge_retry_deliveries"])
def test_airflow_ends_a_push_that_does_not_stop_by_itself(dags: dict[str, DAG], dag_id: str) -> None:
    """A push has a budget of 20 s; Airflow ends it 30 s later."""
    assert dags[dag_id].get_task("push").partial_kwargs["execution_timeout"] == timedelta(seconds=50)
