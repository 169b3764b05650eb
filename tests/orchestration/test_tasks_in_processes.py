"""The basics of the tasks: preloading, connections, the push operator's stop flag, the local settings."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
import time
from datetime import timedelta
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from eventbridge.airflow import names, pools
from eventbridge.airflow.connections import airflow_connection
from eventbridge.airflow.dags.operate_rules import carry_out, operate_params
from eventbridge.airflow.dags.redrive_dead_letters import redrive_id_of, redrive_params
from eventbridge.airflow.dags.replay_events import replay_id_of, replay_params
from eventbridge.airflow.form_fields import form_values, recorded_form
from eventbridge.airflow.names import UNPLANNED_POOL
from eventbridge.airflow.next_run import plan_with_retries
from eventbridge.airflow.policy import UNPLANNED
from eventbridge.airflow.preload import TASK_MODULES, _modules, preload
from eventbridge.airflow.push import PushOperator, chunk_name, pushes
from eventbridge.airflow.tasks import stage
from eventbridge.config.connection import connections_from_environment
from eventbridge.dead_letters.redrive_plan import RedrivePlan
from eventbridge.delivery.outstanding import TargetReport
from eventbridge.delivery.push import PushReport
from eventbridge.errors import ConnectionUnusable, LedgerError, ReconciliationError, UserError
from eventbridge.model import chunk
from eventbridge.model.chunk import Chunk, Piece
from eventbridge.processes import NICENESS
from eventbridge.runtime.stop import Stop

ROOT = Path(__file__).parents[2]

URI = "https://login:p%40ss@hooks.example:8443/v1?signing_secret=whsec_AA%3D%3D&token=t"


@pytest.mark.parametrize("store", ["", "s3://bucket/x"])
@pytest.mark.parametrize("process", ["scheduler", "dag-processor"])
def test_everything_that_is_preloaded_can_be_imported(
    process: str, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that moves would silently cost every task, or every DAG file, its import time."""
    monkeypatch.setenv("EVENTBRIDGE_STORE_URI", store)

    assert preload([process]) == []


def test_a_scheduler_whose_tasks_run_elsewhere_imports_nothing_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would spend seconds of CPU and keep the modules, for workers that load them themselves."""
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor,KubernetesExecutor")
    assert _modules(["scheduler"]) == ()
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor,team:LocalExecutor")
    assert set(_modules(["scheduler"])) >= set(TASK_MODULES)


@pytest.mark.parametrize("file", ["config/airflow_local_settings.py", "plugins/eventbridge_plugin.py"])
def test_policy_and_plugin_are_registered_once(file: str) -> None:
    """An installed package registers both by its entry points; the checkout's files then have nothing to add."""
    points = {
        f"airflow.{each.group.rpartition('.')[2]}"
        for each in entry_points(name="eventbridge")
        if "airflow" in each.group
    }
    spec = importlib.util.spec_from_file_location("file_of_test", ROOT / file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    assert points == {"airflow.plugins", "airflow.policy"}, "run `make setup` again: the package is older than these"
    assert {"task_instance_mutation_hook", "EventBridgePlugin"} & set(vars(module)) == set()


def test_airflow_calls_the_packages_policy(home: Path) -> None:
    """Airflow's own hook, with its own arguments, places a push; unmapped tasks are shown to policies too."""
    from airflow import settings

    instance = SimpleNamespace(
        dag_id="eventbridge_deliver_orders", task_id="push", run_id="r", map_index=0, pool="", priority_weight=0
    )
    settings.get_policy_plugin_manager().hook.task_instance_mutation_hook(task_instance=instance, dag_run=None)

    assert (instance.pool, instance.priority_weight) == (UNPLANNED_POOL, UNPLANNED.weight)
    assert not settings.task_instance_mutation_hook.is_noop


def test_an_airflow_connection_is_what_the_same_uri_is_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """AIRFLOW_CONN_CRM inside Airflow and EVENTBRIDGE_CONN_CRM outside mean the same."""
    monkeypatch.setenv("AIRFLOW_CONN_CRM", URI)

    assert airflow_connection("crm") == connections_from_environment({"EVENTBRIDGE_CONN_CRM": URI})("crm")


def test_a_connection_that_airflow_does_not_know_is_the_users_error() -> None:
    """The error names the connection and how to create it."""
    with pytest.raises(ConnectionUnusable, match=r"'nowhere'.*airflow connections import"):
        airflow_connection("nowhere")


def test_give_way_lowers_the_priority_further() -> None:
    """Its process has a lower priority than its parent."""
    code = "import os; from eventbridge.airflow import tasks; tasks.give_way({}); print(os.nice(0))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert int(done.stdout) == min(19, os.nice(0) + NICENESS)


def test_a_killed_push_stops_and_keeps_its_responses(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's SIGTERM only calls on_kill, which sets the stop flag of the running push."""
    running = threading.Event()

    def push(runtime: Any, batch_id: str, chunk_id: int, stop: Stop) -> PushReport:
        running.set()
        stop.wait(30)
        return PushReport(claimed=True, targets=(TargetReport("big", "log", 1, delivered=1),))

    monkeypatch.setattr("eventbridge.delivery.push.push", push)
    operator = PushOperator(task_id="push", batch_id="b", chunk_id=3)
    task = threading.Thread(target=operator.execute, args=({},))
    began = time.monotonic()
    task.start()
    assert running.wait(30)
    operator.on_kill()
    task.join(30)

    assert not task.is_alive()
    assert time.monotonic() - began < 25


def test_a_push_can_be_killed_before_it_begins() -> None:
    """on_kill before execute is harmless."""
    PushOperator(task_id="push", batch_id="b", chunk_id=3).on_kill()


def test_without_a_batch_a_push_does_nothing(home: Path) -> None:
    """An empty batch id, as after a failed listen, opens nothing."""
    PushOperator(task_id="push", batch_id="", chunk_id=3).execute({})

    assert not home.exists()


def test_a_push_is_named_by_rule_and_target(home: Path) -> None:
    """The name has the first target; it is empty without a batch, and the chunk's number if the chunk is unknown."""
    pieces = [Piece("f", "0", 1, 1, "big-orders", target) for target in ("crm", "crm", "audit", "log")]
    chunks = [Chunk("b", n, "p", 1, tuple(pieces[:count]), 1, 1) for n, count in enumerate((2, 4))]

    assert [chunk_name(chunk) for chunk in chunks] == ["big-orders/crm", "big-orders/crm and 2 more"]
    assert PushOperator(task_id="push", batch_id="", chunk_id=3).chunk_name == ""
    home.mkdir()
    assert PushOperator(task_id="push", batch_id="none", chunk_id=3).chunk_name == "chunk 3"
    assert pushes("b").expand(chunk_id=[1]).partial_kwargs["map_index_template"] == "{{ task.chunk_name }}"


def test_errors_that_a_person_must_fix_are_not_retried(home: Path) -> None:
    """A batch that is not reconciled fails the task without a retry; an unreachable ledger is retried."""
    with pytest.raises(AirflowFailException, match="one too many"), stage():
        raise ReconciliationError("one too many")
    with pytest.raises(LedgerError), stage():
        raise LedgerError("unreachable")


def test_the_pools_of_retries_and_unplanned_pushes_are_created() -> None:
    """Every pool that does not belong to a rule is among those that listen creates."""
    assert {chunk.SLOW_LANE_POOL, names.UNPLANNED_POOL} <= set(pools.SHARED_POOLS)
    assert UNPLANNED.pool == names.UNPLANNED_POOL


@pytest.mark.parametrize(
    ("entered", "said"),
    [
        ({}, r"Fill in bus \(.*\), from \(.*\) and rules \(their names, or \* for all"),
        ({"bus": "orders"}, r"Fill in from \(.*\) and rules"),
        ({"bus": "orders", "from": "1h"}, "Fill in rules"),
        ({"bus": "ordres", "from": "1h", "rules": ["*"]}, "defines a bus 'ordres'. Did you mean orders?"),
        ({"bus": "orders", "from": "1h", "rules": ["bigg"]}, "has no rule 'bigg'. Did you mean big?"),
        ({"bus": "orders", "from": "1h", "rules": ["*"], "targets": ["lgo"]}, "has a target 'lgo'. Did you mean log?"),
        ({"bus": "orders", "from": "1h", "rules": ["*"], "pattern": "{"}, "is not JSON"),
        ({"replay_id": "3f2a"}, "Switch Dry run off"),
    ],
)
def test_an_invalid_replay_form_is_refused(entered: dict[str, Any], said: str, home: Path) -> None:
    """It is refused before anything is recorded, and a replay cannot be changed when it continues."""
    form = {name: param.value for name, param in replay_params().items()} | entered

    with stage() as runtime:
        with pytest.raises(UserError, match=said):
            replay_id_of(runtime, form, "eventbridge_replay_events a run")

        assert runtime.ledger.replays.all() == []


def test_a_retried_run_keeps_its_replay(home: Path) -> None:
    """A run has one replay. A person's form resumes a paused replay; the run after a batch does not."""
    form = {name: param.value for name, param in replay_params().items()}
    asked = form | {"bus": "orders", "from": "1h", "rules": ["*"], "dry_run": False}
    continued = form | {"dry_run": False}

    with stage() as runtime:
        begun = replay_id_of(runtime, asked, "eventbridge_replay_events manual__1")
        assert begun is not None
        assert replay_id_of(runtime, asked, "eventbridge_replay_events manual__1") == begun
        runtime.ledger.replays.set_state(begun, "running", "paused")
        replay_id_of(runtime, continued | {"replay_id": begun}, f"eventbridge_replay_events replay__{begun}__after_x")
        assert runtime.ledger.replays.get(begun).state == "paused"
        replay_id_of(runtime, continued | {"replay_id": begun}, "eventbridge_replay_events manual__2")
        assert runtime.ledger.replays.get(begun).state == "running"
        assert (
            replay_id_of(
                runtime, continued | {"replay_id": begun, "bus": "orders"}, "eventbridge_replay_events manual__3"
            )
            == begun
        )
        with pytest.raises(UserError, match="started for bus 'orders'"):
            replay_id_of(
                runtime, continued | {"replay_id": begun, "bus": "night"}, "eventbridge_replay_events manual__3"
            )
        with pytest.raises(UserError, match="Reset these fields: rules, ids"):
            replay_id_of(
                runtime,
                continued | {"replay_id": begun, "ids": "same", "rules": ["big"]},
                "eventbridge_replay_events x",
            )
        assert replay_id_of(runtime, asked | {"dry_run": True}, "eventbridge_replay_events manual__3") is None
        assert len(runtime.ledger.replays.all()) == 1


@pytest.mark.parametrize(
    ("entered", "said"),
    [
        ({}, "no filter given"),
        ({"names": [" "]}, "no filter given"),
        ({"sql": " ", "from": " "}, "no filter given"),
        ({"rule": "bigg"}, "no rule file defines a rule 'bigg', and no dead letter names it. Did you mean big?"),
        ({"target": "lgo"}, "no rule file defines a target 'lgo', and no dead letter names it. Did you mean log?"),
        ({"rule": "xyz"}, "no rule file defines a rule 'xyz', and no dead letter names it. Rules: "),
        ({"rule": "big", "target": "lgo"}, "the rule 'big' has no target 'lgo'"),
        ({"redrive_id": "3f2a"}, "Switch Dry run off"),
        ({"redrive_id": "3f2a", "dry_run": False, "rule": "big", "rate": 5}, "rule, rate"),
        ({"everything": True, "rate": 1e308}, "cannot be kept"),
        ({"everything": True, "rate": 1e308, "dry_run": True}, "cannot be kept"),
    ],
)
def test_an_invalid_redrive_form_is_refused(entered: dict[str, Any], said: str, home: Path) -> None:
    """Blank fields are no filter, a redrive cannot be changed when it continues, and a dry run delivers nothing."""
    form = {name: param.value for name, param in redrive_params().items()} | entered

    with stage() as runtime:
        with pytest.raises(UserError, match=said):
            redrive_id_of(runtime, form, "a run")

        assert runtime.ledger.redrives.all() == []


@pytest.mark.parametrize(
    ("conf", "dry"),
    [
        ({"replay_id": "3f2a"}, False),
        ({"replay_id": "3f2a", "dry_run": True}, True),
        ({"bus": "orders"}, True),
        ({"bus": "orders", "dry_run": False}, False),
        ({}, True),
    ],
)
def test_only_a_run_that_continues_work_is_no_dry_run_by_default(conf: dict[str, Any], dry: bool) -> None:
    """The run of a replay's next batch only has the replay id; every other run is a dry run by default."""
    assert form_values(context_of(conf), replay_params(), resumes="replay_id")["dry_run"] is dry


@pytest.mark.parametrize(
    ("rule", "said"),
    [("bigg", "no rule file defines a rule 'bigg'. Did you mean big?"), ("big", "Tick Confirm to disable it")],
)
def test_a_mistyped_rule_is_named_before_a_confirmation_is_missed(rule: str, said: str, home: Path) -> None:
    """The form of operate_rules checks the rule first: no dialog asks about a missing rule."""
    form = {name: param.value for name, param in operate_params().items()} | {"action": "disable rule", "rule": rule}

    with stage() as runtime, pytest.raises(UserError, match=re.escape(said)):
        carry_out(runtime, form, "ada")


def test_an_unknown_field_of_a_form_is_refused() -> None:
    """Airflow would pass it on, and a typo would select too much."""
    with pytest.raises(UserError, match=r"unknown field 'rulse' of the form. Did you mean rules\?"):
        form_values(context_of({"rulse": ["big"]}), replay_params())


def test_a_form_is_recorded_before_it_is_carried_out(home: Path) -> None:
    """The record has the user, the DAG, the form and the exit code; a dry run is not recorded."""
    context = {
        "dag": SimpleNamespace(dag_id="eventbridge_operate_rules"),
        "dag_run": SimpleNamespace(triggering_user_name="ada"),
        "run_id": "manual__1",
    }
    with stage() as runtime:
        with recorded_form(runtime, context, {"action": "pause rule", "rule": "big", "target": None}) as by:  # type: ignore[arg-type]
            (noted,) = runtime.ledger.actions.find(10)
        with pytest.raises(UserError), recorded_form(runtime, context, {"rule": "bgi"}):  # type: ignore[arg-type]
            raise UserError("no rule 'bgi'")
        with recorded_form(runtime, context, {"rule": "big", "dry_run": True}):  # type: ignore[arg-type]
            pass
        refused, done = runtime.ledger.actions.find(10)

    assert (by, noted.by, noted.call, noted.status) == ("ada", "Airflow, ada", "DAG eventbridge_operate_rules", None)
    assert json.loads(noted.asked) == {"action": "pause rule", "rule": "big"}
    assert (done.status, refused.status) == (0, UserError.exit_code)


def context_of(conf: dict[str, Any]) -> Any:
    """Return the context of a run with this conf."""
    params = {name: param.value for name, param in replay_params().items()} | conf
    return {"dag_run": SimpleNamespace(conf=conf), "params": params}


def test_a_batch_that_must_wait_is_left_to_the_next_run(home: Path) -> None:
    """Otherwise the run would time out, and its replay or redrive stall; a batch that is ready in time is taken."""
    with stage() as runtime:
        plans = iter([RedrivePlan(wait_until=runtime.ledger.now()), RedrivePlan("a batch")])
        waits = RedrivePlan(wait_until=runtime.ledger.now() + timedelta(hours=1))

        assert plan_with_retries(runtime, lambda: next(plans)).batch_id == "a batch"
        assert plan_with_retries(runtime, lambda: waits, patience_seconds=0) == waits
