"""What Airflow makes of the DAG files: ids, shape, trigger rules, policy, mistakes of rule files, cost of parsing."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG, AssetOrTimeSchedule, TriggerRule
from airflow.sdk.definitions.context import _AIRFLOW_PARSING_CONTEXT_DAG_ID
from airflow.serialization.serialized_objects import DagSerialization

from eventbridge.errors import RuleFileError
from eventbridge.orchestrate.dags import airflow_dags
from eventbridge.orchestrate.slow_lane import give_way
from eventbridge.rule import load_rules
from eventbridge.stages.letters.selection import REASONS, Selection
from eventbridge.stages.operate.say import Action

DAGS = Path(__file__).parents[2] / "dags"
#: DAGs whose runs move no batch, and of those the ones that a person triggers to try rules.
TRYING = {"backtest_rules", "diff_rules"}
ASKED = {"operate_rules", "publish_events", "explain_event", "replay_archive"}
WITHOUT_BATCH = ASKED | {"maintain_store", "check_quality"} | TRYING
EVERY_HOUSE = {"retry_deliveries", "redrive_dead_letters", "replay_events"} | WITHOUT_BATCH


@pytest.fixture
def dags(home: Path) -> dict[str, DAG]:
    """Return the DAGs by id, as Airflow's own parser finds them."""
    bag = DagBag(DAGS)

    assert bag.import_errors == {}
    return bag.dags


def of_batches(dags: dict[str, DAG]) -> list[DAG]:
    """Return the DAGs whose runs move a batch."""
    return [dag for name, dag in dags.items() if name not in WITHOUT_BATCH]


def edges(dag: DAG) -> set[tuple[str, str]]:
    """Return (upstream, downstream) of a DAG's tasks."""
    return {(task.task_id, other) for task in dag.tasks for other in task.downstream_task_ids}


def test_each_runner_has_a_dag_and_retries_have_one(dags: dict[str, DAG]) -> None:
    """The DAG ids are those of the runners that the rule files name, and of the DAGs that every house has."""
    assert {"deliver_orders", "deliver_night"} | EVERY_HOUSE == set(dags)


def test_the_package_makes_the_same_dags(dags: dict[str, DAG]) -> None:
    """What one file in another Airflow's DAGs folder imports is what the DAG files of a checkout make."""
    assert {name: edges(dag) for name, dag in dags.items()} == {
        name: edges(dag) for name, dag in airflow_dags().items()
    }


@pytest.mark.parametrize("dag_id", ["deliver_night", "retry_deliveries", "somebody_elses"])
def test_a_task_makes_its_own_dag_only(home: Path, dag_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file has all DAGs; the process of a task pays for one."""
    monkeypatch.setenv(_AIRFLOW_PARSING_CONTEXT_DAG_ID, dag_id)

    assert set(airflow_dags()) == {dag_id} - {"somebody_elses"}


def test_a_batch_goes_through_the_stages_in_order(dags: dict[str, DAG]) -> None:
    """Commit's upstreams are route, write_dead_letters and schedule_retries, and not push."""
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

    assert expected == edges(dags["deliver_orders"])


def test_a_retry_batch_goes_through_the_stages_from_route_on(dags: dict[str, DAG]) -> None:
    """A retry batch is planned, routed, pushed, settled, parked, committed; stale ones are settled beside it."""
    expected = {
        ("plan_retries", "route"),
        ("route", "push"),
        ("push", "write_dead_letters"),
        ("write_dead_letters", "schedule_retries"),
        ("route", "commit"),
        ("write_dead_letters", "commit"),
        ("schedule_retries", "commit"),
    }

    assert expected == edges(dags["retry_deliveries"])
    assert "settle_stale" in dags["retry_deliveries"].task_ids


def test_a_redrive_batch_goes_through_the_stages_and_triggers_the_next(dags: dict[str, DAG]) -> None:
    """A run plans and moves one batch, then triggers another run if letters are left; nothing starts it by itself."""
    redrive = dags["redrive_dead_letters"]
    expected = edges(dags["retry_deliveries"]) - {("plan_retries", "route")}

    assert edges(redrive) == expected | {("plan_redrive", "route"), ("commit", "go_on")}
    assert (redrive.max_active_runs, redrive.dagrun_timeout) == (1, timedelta(seconds=200))
    assert redrive.schedule is None


def test_a_replay_batch_goes_through_the_stages_and_triggers_the_next(dags: dict[str, DAG]) -> None:
    """As a redrive's, four replays at once, their pushes in the replay lane below all else."""
    replay = dags["replay_events"]
    expected = edges(dags["retry_deliveries"]) - {("plan_retries", "route")}
    push = replay.get_task("push")

    assert edges(replay) == expected | {("plan_replay", "route"), ("commit", "go_on")}
    assert (replay.max_active_runs, replay.dagrun_timeout, replay.schedule) == (4, timedelta(seconds=200), None)
    assert (push.priority_weight, push.pool) == (-400, "lane.replay")


def test_the_form_of_a_replay_is_typed(dags: dict[str, DAG]) -> None:
    """Each field has a type, a title and help; times are picked, choices are listed; as it stands, it is valid."""
    params = dags["replay_events"].params
    schemas = {name: params.get_param(name) for name in params}

    assert all("type" in each.schema and each.schema["title"] and each.description for each in schemas.values())
    assert [name for name in schemas if schemas[name].schema.get("format") == "date-time"] == ["from", "to"]
    assert {name: each.schema["enum"] for name, each in schemas.items() if "enum" in each.schema} == {
        "as_of": ["today", "then"],
        "ids": ["new", "same"],
    }
    params.validate()


def test_a_replay_form_asks_for_nothing_that_is_optional(dags: dict[str, DAG]) -> None:
    """Every field but choices may be left empty, and the buses of the rule files are proposed."""
    for name in ("replay_events", "replay_archive"):
        params = {each: dags[name].params.get_param(each).schema for each in dags[name].params}

        assert params["bus"]["examples"] == ["orders"]
        assert {each for each, schema in params.items() if "null" not in schema["type"]} == {
            "as_of",
            "ids",
            "skip_delivered",
            "dry_run",
        }


def test_hours_of_archive_are_replayed_by_backfill_alone(dags: dict[str, DAG]) -> None:
    """A backfill makes a run an hour, each with its hour; the scheduler never makes one; the form asks for no times."""
    archive = dags["replay_archive"]
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
    assert set(archive.params) == set(dags["replay_events"].params) - {"from", "to", "replay_id"}
    archive.params.validate()


def test_the_form_of_a_redrive_has_what_selections_have(dags: dict[str, DAG]) -> None:
    """Each field of a selection and each option is a typed parameter; as it stands, the form is valid."""
    params = dags["redrive_dead_letters"].params
    fields = {each.name for each in dataclasses.fields(Selection)}

    assert set(params) == fields | {"everything", "rate", "retransform", "again", "dry_run", "redrive_id"}
    assert all("type" in params.get_param(name).schema for name in params)
    assert params.get_param("reason").schema["enum"] == [None, *(each for each in REASONS if each != "Malformed")]
    params.validate()


def test_the_form_of_operate_rules_has_every_action(dags: dict[str, DAG]) -> None:
    """What can be said of rules and targets is a choice of the form, whose fields are typed."""
    params = dags["operate_rules"].params

    assert tuple(params.get_param("action").schema["enum"]) == get_args(Action)
    assert set(params) == {"action", "rule", "target", "value", "confirm"}
    assert all("type" in params.get_param(name).schema for name in params)


def test_the_form_of_explain_event_is_typed(dags: dict[str, DAG]) -> None:
    """An id is required; bus and times are not, and times are picked."""
    params = dags["explain_event"].params
    schemas = {name: params.get_param(name).schema for name in params}

    assert set(schemas) == {"event_id", "bus", "from", "to"}
    assert [name for name in schemas if schemas[name].get("format") == "date-time"] == ["from", "to"]
    assert all("type" in each and each["title"] for each in schemas.values())
    assert schemas["event_id"]["minLength"] == 1


def test_an_hour_is_checked_after_each_one(dags: dict[str, DAG]) -> None:
    """One task, ten minutes past every hour, one run at a time; the form may name another hour by a picker."""
    check = dags["check_quality"]

    assert check.task_ids == ["check_quality"]
    assert check.timetable.expression == "10 * * * *"  # type: ignore[attr-defined]
    assert (check.max_active_runs, check.catchup, check.dagrun_timeout) == (1, False, timedelta(seconds=200))
    assert check.params.get_param("hour").schema["format"] == "date-time"
    check.params.validate()


@pytest.mark.parametrize(("dag_id", "named"), [("backtest_rules", {"candidate"}), ("diff_rules", {"a", "b"})])
def test_the_form_of_a_backtest_is_typed(dags: dict[str, DAG], dag_id: str, named: set[str]) -> None:
    """Each field has a type, a title and help; times are picked; what is compared must be named."""
    params = dags[dag_id].params
    schemas = {name: params.get_param(name) for name in params}

    assert set(params) == named | {"from", "to", "bus", "samples"}
    assert all("type" in each.schema and each.schema["title"] and each.description for each in schemas.values())
    assert [name for name in schemas if schemas[name].schema.get("format") == "date-time"] == ["from", "to"]
    assert {name for name in schemas if schemas[name].schema.get("minLength")} == named
    assert dags[dag_id].dagrun_timeout == timedelta(hours=6)


def test_the_form_of_publish_events_proposes_the_buses(dags: dict[str, DAG]) -> None:
    """The buses of the rule files are proposed, and every field is typed."""
    params = dags["publish_events"].params

    assert "orders" in params.get_param("bus").schema["examples"]
    assert set(params) == {"bus", "topic", "events"}
    assert all("type" in params.get_param(name).schema for name in params)


def test_settling_happens_whatever_became_of_the_pushes(dags: dict[str, DAG]) -> None:
    """Settle and park run when all before is done, commit when none of its upstreams failed, all else on success."""
    for dag in of_batches(dags):
        rules = {task.task_id: task.trigger_rule for task in dag.tasks}
        settling = {"write_dead_letters": TriggerRule.ALL_DONE, "schedule_retries": TriggerRule.ALL_DONE}
        expected = dict.fromkeys(rules, TriggerRule.ALL_SUCCESS) | settling | {"commit": TriggerRule.NONE_FAILED}

        assert expected == rules


def test_only_push_is_mapped_and_only_push_is_never_tried_again(dags: dict[str, DAG]) -> None:
    """Stages are tried three more times by Airflow, pushes never: the settlement parks what they left."""
    for dag in dags.values():
        for task in dag.tasks:
            assert (task.task_id == "push") == task.is_mapped
            assert (0 if task.task_id == "push" else 3) == task.retries
            assert (None if task.task_id == "push" else timedelta(seconds=5)) in (None, task.retry_delay)


def test_tasks_of_the_slow_lane_give_way_to_new_deliveries(dags: dict[str, DAG]) -> None:
    """Tasks of old work, and of retention, lower the priority of their process before they begin; no others do."""
    for dag in dags.values():
        hooks = [
            task.partial_kwargs.get("pre_execute") if task.is_mapped else task._pre_execute_hook for task in dag.tasks
        ]
        old = {"retry_deliveries", "redrive_dead_letters", "replay_events", "replay_archive", "maintain_store"} | TRYING
        slow = dag.dag_id in old
        assert hooks == [give_way if slow else None] * len(dag.tasks)


def test_weights_are_absolute_and_stages_go_before_pushes(dags: dict[str, DAG]) -> None:
    """A stage weighs more than any push (at most 750); retries weigh less than any (at least 100) and have a pool."""
    for dag in dags.values():
        for task in dag.tasks:
            assert "absolute" in str(task.weight_rule)
            if task.task_id != "push":
                assert task.priority_weight == (-1_000 if dag.dag_id == "maintain_store" else 1_000)
    retry = dags["retry_deliveries"].get_task("push")

    assert (retry.priority_weight, retry.pool) == (-200, "lane.slow")


def test_every_dag_says_whose_it_is_and_what_it_does(dags: dict[str, DAG]) -> None:
    """Policy: owner, tags, a guide and a description on each DAG; no task runs without an owner."""
    for dag in dags.values():
        assert "eventbridge" in dag.tags
        assert dag.doc_md
        assert dag.description
        assert {"eventbridge"} == {task.owner for task in dag.tasks}


def test_runs_are_bounded(dags: dict[str, DAG]) -> None:
    """One active run a runner, four of retries, no catch-up, and a time-out of budgets and deadline plus a minute."""
    deliver, retry = dags["deliver_orders"], dags["retry_deliveries"]

    assert (deliver.max_active_runs, retry.max_active_runs) == (1, 4)
    assert (timedelta(seconds=200), timedelta(seconds=200)) == (deliver.dagrun_timeout, retry.dagrun_timeout)
    assert not deliver.catchup
    assert not retry.catchup


def test_retention_runs_every_hour_and_ends_in_time(dags: dict[str, DAG]) -> None:
    """One run at a time, which ends after its budget and what it had begun; a missed hour is not made up for."""
    maintain = dags["maintain_store"]

    assert maintain.timetable.expression == "17 * * * *"  # type: ignore[attr-defined]
    assert (maintain.max_active_runs, maintain.catchup) == (1, False)
    assert maintain.dagrun_timeout == timedelta(seconds=600)


def test_only_the_archive_is_backfilled(dags: dict[str, DAG]) -> None:
    """A bell, the clock, a person and another DAG may start a run of any other DAG; no backfill is offered."""
    for dag in (dag for name, dag in dags.items() if name != "replay_archive"):
        assert dag.allowed_run_types == {"scheduled", "asset_triggered", "manual", "operator_triggered"}


def test_a_run_is_woken_by_its_own_bell_and_by_the_clock(dags: dict[str, DAG]) -> None:
    """Each DAG but redrives and replays waits for an asset of its own, which the doorbell rings, or the next minute."""
    subjects = set()
    asked_for = ("redrive_dead_letters", "replay_events")
    for dag in (dag for dag in of_batches(dags) if dag.dag_id not in asked_for):
        assert isinstance(dag.timetable, AssetOrTimeSchedule)
        (asset,) = dag.timetable.asset_condition.objects  # type: ignore[attr-defined]
        (watcher,) = asset.watchers
        subjects.add(watcher.trigger.subject)
        assert asset.name == watcher.trigger.subject
        assert dag.timetable.timetable.expression == "* * * * *"  # type: ignore[attr-defined]

    assert {"events_orders", "events_night", "due_deliveries"} == subjects


def test_the_shape_does_not_depend_on_the_number_of_rules(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred more rules of a runner change nothing that the scheduler has to look at."""
    before = {dag_id: edges(dag) for dag_id, dag in DagBag(DAGS).dags.items()}
    rule = "  r{n}: {{bus: orders, pattern: {{}}, targets: {{log: {{type: file, path: /tmp/never.jsonl}}}}}}\n"
    more = "rules:\n" + "".join(rule.format(n=n) for n in range(100))
    (Path(os.environ["EVENTBRIDGE_RULES_FOLDER"]) / "more.yaml").write_text(more)

    assert before == {dag_id: edges(dag) for dag_id, dag in DagBag(DAGS).dags.items()}


def test_mistakes_of_rule_files_are_airflows_import_error(home: Path) -> None:
    """The UI shows every mistake with file, line and column: the text of `eventbridge rules check`."""
    folder = Path(os.environ["EVENTBRIDGE_RULES_FOLDER"])
    (folder / "wrong.yaml").write_text("rules:\n  a: {bus: nowhere, patern: {}}\n  b: 7\n")
    with pytest.raises(RuleFileError) as mistakes:
        load_rules(folder)
    bag = DagBag(DAGS)

    assert len(mistakes.value.mistakes) > 1
    (shown,) = bag.import_errors.values()
    assert str(mistakes.value) in shown
    assert set(bag.dags) == EVERY_HOUSE


# Parses one DAG file as a fork of Airflow's processes does and prints what it opened, connected to and imported
# meanwhile. What they have loaded by then is loaded here too: croniter, for one, runs `file` when it is imported.
_WATCHED_PARSE = """
import json, runpy, sys, time
import airflow.sdk, airflow.sdk.definitions.asset, airflow.triggers.base, pydantic, croniter
if sys.argv[2] != "-":
    from airflow.sdk.definitions._internal.dag_parsing_context import _airflow_parsing_context_manager as within
    within(sys.argv[2], "push").__enter__()
events = []
watched = ("open", "socket.connect", "subprocess.Popen", "sqlite3.connect", "os.mkdir", "os.rename", "os.remove")
sys.addaudithook(lambda name, args: events.append((name, str(args[0]))) if name in watched else None)
began = time.process_time()
found = runpy.run_path(sys.argv[1])
seconds = time.process_time() - began
dags = sorted({v.dag_id for v in found.values() if type(v).__name__ == "DAG"} |
              {v.operator.dag.dag_id for v in found.values() if type(v).__name__ == "PlainXComArg"})
print(json.dumps({"events": events, "seconds": seconds, "modules": sorted(sys.modules), "dags": dags}))
"""


def watched_parse(file: str, task_of: str = "-") -> dict[str, object]:
    """Parse a DAG file in a process of its own, as a task of DAG `task_of` does if one is given."""
    command = [sys.executable, "-c", _WATCHED_PARSE, str(DAGS / file), task_of]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def touched(found: dict[str, object]) -> list[list[str]]:
    """Return what a parse touched beside source code."""
    code = (".py", ".pyc", ".so")
    return [[name, what] for name, what in found["events"] if name != "open" or not what.endswith(code)]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "file",
    ["deliver_events.py", *(f"{dag}.py" for dag in sorted(EVERY_HOUSE))],
)
def test_parsing_reads_the_rule_files_and_nothing_else(home: Path, file: str) -> None:
    """No connection, process, database, or file but the rules while a DAG file is parsed; no heavy import; quickly.

    What files held is looked up in the rule cache.
    """
    found = watched_parse(file)
    rules, cache = os.environ["EVENTBRIDGE_RULES_FOLDER"], str(home / "rule_cache")
    heavy = {
        "pyspark",
        "pyarrow",
        "pycurl",
        "alembic",
        "great_expectations",
        "pandas",
        "eventbridge.stages.push.stage",
        "eventbridge.ledger.ledger",
    }

    assert [each for each in touched(found) if not each[1].startswith((rules, cache))] == []
    assert not heavy & set(found["modules"])  # type: ignore[call-overload]
    assert found["seconds"] < 3.0  # type: ignore[operator]  # 0.1 on a quiet machine; every task pays it


def test_a_task_parses_its_own_dag_without_the_rule_files(home: Path) -> None:
    """While somebody edits the rules, and breaks them, the tasks of a batch under way go on."""
    (Path(os.environ["EVENTBRIDGE_RULES_FOLDER"]) / "wrong.yaml").write_text("rules: [")
    found = watched_parse("deliver_events.py", task_of="deliver_night")

    assert touched(found) == []
    assert found["dags"] == ["deliver_night"]


@pytest.mark.parametrize("dag_id", ["deliver_orders", "retry_deliveries"])
def test_airflow_ends_a_push_that_does_not_stop_by_itself(dags: dict[str, DAG], dag_id: str) -> None:
    """The budget of 20 s is the push's own; half a minute later comes the net."""
    assert dags[dag_id].get_task("push").partial_kwargs["execution_timeout"] == timedelta(seconds=50)
