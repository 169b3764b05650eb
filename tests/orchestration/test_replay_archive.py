"""The tasks and the trigger of the DAG `eventbridge_replay_archive`, on a real ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from eventbridge.airflow.dags.replay_archive import archive_params, replay_of_hour, report_end
from eventbridge.airflow.dags.replay_events import cancel_if_archive_run_failed, resume_for
from eventbridge.airflow.replay_end import ReplayEnd
from eventbridge.airflow.settings import run_limit
from eventbridge.airflow.stuck import orphaned_redrive, orphaned_replay
from eventbridge.airflow.tasks import stage
from eventbridge.dead_letters.redrive_plan import begin_redrive
from eventbridge.dead_letters.selection import Selection
from eventbridge.errors import UserError
from eventbridge.model.redelivery import RECORDED, Replay
from eventbridge.runtime.runtime import Runtime

RUN = "eventbridge_replay_archive backfill__2026-11-22T08:00:00+00:00"
HOUR = (datetime(2026, 11, 22, 8, tzinfo=UTC), datetime(2026, 11, 22, 9, tzinfo=UTC))


#: The default form: the parameters of a run to which Airflow passes none.
EMPTY = {name: param.value for name, param in archive_params().items()}


@pytest.fixture
def runtime(home: Path) -> Iterator[Runtime]:
    """The runtime of a task."""
    with stage() as runtime:
        yield runtime


def asked(runtime: Runtime, times: int = 0, **filled_in: Any) -> Replay:
    """Return the replay of the hour for a run that was cleared `times` times."""
    form = EMPTY | {"bus": "orders", "rules": ["*"], "dry_run": False} | filled_in
    found = replay_of_hour(runtime, form, HOUR, RUN, times)
    assert found is not None
    return found


def test_a_run_replays_its_hour(runtime: Runtime) -> None:
    """It uses its data interval and the conf of the backfill; a retry has the same replay."""
    begun = asked(runtime, rules=["big"], rate=5)

    assert (begun.since, begun.until) == HOUR
    assert (begun.bus, begun.selection["rules"], begun.rate, begun.state) == ("orders", ["big"], 5, "running")
    assert asked(runtime, rules=["big"], rate=5) == begun


def test_a_run_without_parameters_is_refused(runtime: Runtime) -> None:
    """Airflow's dialogue passes its form on only if a box is ticked: the error names the box, and nothing is
    recorded.
    """
    with pytest.raises(UserError, match=r"no bus given.*tick 'Override parameters on existing runs'"):
        replay_of_hour(runtime, EMPTY, HOUR, RUN, 0)

    assert runtime.ledger.replays.all() == []


def test_delivering_to_all_rules_needs_an_explicit_value(runtime: Runtime) -> None:
    """No rule is an error; `*` alone means all rules."""
    with pytest.raises(UserError, match=r"Fill in rules \(their names, or \* for all rules of the bus\)"):
        asked(runtime, rules=[])
    with pytest.raises(UserError, match=r"\* means all rules"):
        asked(runtime, rules=["*", "big"])
    assert runtime.ledger.replays.all() == []

    assert "rules" not in asked(runtime, rules=["*"]).selection


def test_a_dry_run_starts_nothing(runtime: Runtime) -> None:
    """A dry run, the default, only logs."""
    form = EMPTY | {"bus": "orders", "rules": ["*"]}

    assert replay_of_hour(runtime, form, HOUR, RUN, 0) is None
    assert runtime.ledger.replays.all() == []


@pytest.mark.parametrize("end", ["done", "cancelled"])
def test_a_run_whose_replay_has_ended_starts_another(runtime: Runtime, end: Any) -> None:
    """Reprocessing a completed run, or one that was marked failed, delivers the hour again."""
    first = asked(runtime)
    runtime.ledger.replays.end(first.replay_id, end)

    second = asked(runtime, 1)

    assert second.replay_id != first.replay_id
    assert (second.state, runtime.ledger.replays.get(first.replay_id).state) == ("running", end)
    assert asked(runtime, 1) == second


def test_a_run_that_timed_out_continues_when_it_is_reprocessed(runtime: Runtime) -> None:
    """The replay was paused and the run failed; reprocessing the hour resumes the replay under its id."""
    first = asked(runtime)
    with pytest.raises(AirflowFailException, match=r"did not end within.*under the same id"):
        report_end(runtime, first.replay_id, "late")
    assert runtime.ledger.replays.get(first.replay_id).state == "paused"

    again = asked(runtime, 1)

    assert (again.replay_id, again.state) == (first.replay_id, "running")
    assert asked(runtime, 1) == again
    assert len(runtime.ledger.replays.all()) == 1


def test_a_paused_replay_of_other_parameters_is_cancelled(runtime: Runtime) -> None:
    """Overridden parameters start a new replay."""
    first = asked(runtime)
    runtime.ledger.replays.set_state(first.replay_id, "running", "paused")

    second = asked(runtime, 1, rate=7)

    assert (second.rate, second.state, runtime.ledger.replays.get(first.replay_id).state) == (7, "running", "cancelled")


def test_a_run_that_is_cleared_while_it_waits_starts_another(runtime: Runtime) -> None:
    """Its replay is cancelled, and the earlier trigger, which is killed later, does not cancel the new one."""
    first = asked(runtime)
    second = asked(runtime, 1)
    asyncio.run(ReplayEnd(first.replay_id, first.run, "2099-01-01T00:00:00+00:00").on_kill())

    assert (runtime.ledger.replays.get(first.replay_id).state, second.state) == ("cancelled", "running")


def test_only_a_replay_that_is_done_makes_the_run_succeed(runtime: Runtime) -> None:
    """A cancelled replay fails the run."""
    begun = asked(runtime)
    report_end(runtime, begun.replay_id, "done")
    with pytest.raises(AirflowFailException, match="was cancelled"):
        report_end(runtime, begun.replay_id, "cancelled")


def first_event(trigger: ReplayEnd) -> Any:
    """Return the payload of the first event of a trigger."""

    async def first() -> Any:
        return await anext(trigger.run())

    return asyncio.run(first()).payload


def test_the_trigger_reports_the_final_state_of_the_replay(runtime: Runtime) -> None:
    """It polls the ledger until then; after its time limit it reports that."""
    begun = asked(runtime)
    now = runtime.ledger.now()

    assert first_event(ReplayEnd(begun.replay_id, RUN, now.isoformat())) == {"state": "late"}
    runtime.ledger.replays.end(begun.replay_id, "done")
    assert first_event(ReplayEnd(begun.replay_id, RUN, (now + timedelta(hours=1)).isoformat())) == {"state": "done"}


def test_the_trigger_is_restored_from_its_serialization() -> None:
    """It is serialized to an import path and arguments."""
    path, arguments = ReplayEnd("3f2a", RUN, "2099-01-01T00:00:00+00:00").serialize()

    assert path == "eventbridge.airflow.replay_end.ReplayEnd"
    assert ReplayEnd(**arguments).serialize() == (path, arguments)


def test_a_task_that_is_marked_failed_cancels_its_replay(runtime: Runtime) -> None:
    """It does not cancel a replay that belongs to another run by now."""
    first = asked(runtime)
    killed = ReplayEnd(first.replay_id, first.run, "2099-01-01T00:00:00+00:00")
    runtime.ledger.replays.set_state(first.replay_id, "running", "paused")
    asked(runtime, 1)
    asyncio.run(killed.on_kill())
    assert runtime.ledger.replays.get(first.replay_id).state == "running"

    asyncio.run(ReplayEnd(first.replay_id, runtime.ledger.replays.get(first.replay_id).run, killed.until).on_kill())
    assert runtime.ledger.replays.get(first.replay_id).state == "cancelled"


@pytest.mark.parametrize("times", [0, 2])
def test_a_replay_whose_run_failed_is_cancelled_at_its_next_batch(runtime: Runtime, times: int) -> None:
    """It is cancelled even if no trigger did it; the run is found by its id, also if it was cleared."""
    begun = asked(runtime, times)
    looked_for = []

    def failed(run_id: str) -> str:
        looked_for.append(run_id)
        return "failed"

    assert cancel_if_archive_run_failed(runtime, begun.replay_id, failed)
    assert runtime.ledger.replays.get(begun.replay_id).state == "cancelled"
    assert looked_for == ["backfill__2026-11-22T08:00:00+00:00"]


@pytest.mark.parametrize("state", ["queued", "running", "success", None])
def test_a_replay_whose_run_has_not_failed_continues(runtime: Runtime, state: str | None) -> None:
    """Also if Airflow has no such run, or its state is unknown."""
    begun = asked(runtime)

    assert not cancel_if_archive_run_failed(runtime, begun.replay_id, lambda run_id: state)
    assert runtime.ledger.replays.get(begun.replay_id).state == "running"


def test_a_replay_that_a_person_continues_is_not_cancelled_for_its_first_run(runtime: Runtime) -> None:
    """Its run waited too long and failed. A form with the replay id gives it to the run of
    `eventbridge_replay_events`.
    """
    begun = asked(runtime)
    with pytest.raises(AirflowFailException):
        report_end(runtime, begun.replay_id, "late")

    resume_for(
        runtime,
        runtime.ledger.replays.get(begun.replay_id),
        "eventbridge_replay_events manual__1",
        lambda run_id: "failed",
    )

    found = runtime.ledger.replays.get(begun.replay_id)
    assert (found.state, found.run) == ("running", "eventbridge_replay_events manual__1")
    assert not cancel_if_archive_run_failed(runtime, begun.replay_id, lambda run_id: "failed")


def test_a_paused_replay_that_its_run_waits_for_stays_that_of_its_run(runtime: Runtime) -> None:
    """A person paused and resumed it: marking its run failed still cancels it."""
    begun = asked(runtime)
    runtime.ledger.replays.set_state(begun.replay_id, "running", "paused")

    resume_for(
        runtime,
        runtime.ledger.replays.get(begun.replay_id),
        "eventbridge_replay_events manual__1",
        lambda run_id: "running",
    )

    found = runtime.ledger.replays.get(begun.replay_id)
    assert (found.state, found.run) == ("running", begun.run)


def test_a_replay_without_a_run_is_orphaned(runtime: Runtime) -> None:
    """It is orphaned after the time of two runs; a replay of a command never is, nor one that a run updates."""
    begun = asked(runtime)
    ago = runtime.ledger.now() - 2 * run_limit(runtime.settings)
    by_command = replace(begun, replay_id="by command", run="command 3f2a", next_at=ago - timedelta(hours=1))
    runtime.ledger.replays.begin(by_command)

    assert orphaned_replay(runtime) is None
    runtime.ledger.replays.defer(begun.replay_id, ago - timedelta(seconds=1))
    found = orphaned_replay(runtime)
    assert found is not None
    assert found.replay_id == begun.replay_id
    runtime.ledger.replays.set_state(begun.replay_id, "running", "paused")
    assert orphaned_replay(runtime) is None


def test_a_request_recorded_without_airflow_is_orphaned_at_once(runtime: Runtime) -> None:
    """It is orphaned until a run or the command starts it; Airflow's own page triggers its requests at once."""
    replay = runtime.ledger.replays.begin(replace(asked(runtime), replay_id="recorded", run=f"{RECORDED}page, ann, 1"))
    how: dict[str, Any] = {"rate": None, "retransform": False, "again": False}
    redrives = [begin_redrive(runtime, Selection(), f"{by}page, ann, 1", **how) for by in (RECORDED, "")]

    left = orphaned_replay(runtime), orphaned_redrive(runtime)
    runtime.ledger.replays.defer(replay.replay_id, runtime.ledger.now())
    runtime.ledger.redrives.defer(redrives[0].redrive_id, runtime.ledger.now())

    assert left == (replay, redrives[0])
    assert (orphaned_replay(runtime), orphaned_redrive(runtime)) == (None, None)
