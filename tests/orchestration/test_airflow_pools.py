"""The pools client against a fake of Airflow's API. The end-to-end tests use the real one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from orchestration.fake_airflow import FakeAirflow, serving

from eventbridge.airflow.airflow_api import AirflowError
from eventbridge.airflow.pools import SHARED_POOLS, AirflowPools, apply_slots, wanted_pools
from eventbridge.airflow.tasks import confirmed_pools, stage
from eventbridge.policy.chunking import PoolSlots
from eventbridge.rules import Bus, Rule, RuleSet


@pytest.fixture
def airflow() -> Iterator[FakeAirflow]:
    """Serve the fake."""
    with serving() as server:
        yield server


def rules(**pools: tuple[str | None, int | None]) -> RuleSet:
    """Return a rule set with one rule for each (pool, concurrency)."""
    made = {
        name: Rule(name=name, bus="b", runner="b", pattern={}, targets={}, pool=pool, concurrency=concurrency)
        for name, (pool, concurrency) in pools.items()
    }
    return RuleSet(buses={"b": Bus(name="b")}, rules=made)


def test_a_rules_own_pool_has_the_slots_of_its_file() -> None:
    """`concurrency` gives pool eventbridge.rule.<rule> its slots; a named pool without a size gets 8. The shared pools
    are always included.
    """
    wanted = wanted_pools(rules(big=(None, 3), small=(None, None), nightly=("movement", None), sized=("own", 5)))

    assert wanted == {**SHARED_POOLS, "eventbridge.rule.big": 3, "movement": 8, "own": 5}


def test_missing_pools_are_created_and_existing_ones_stay(airflow: FakeAirflow) -> None:
    """An operator's slots override the rule file's; all pools are returned with their slots and free slots."""
    airflow.add("eventbridge.rule.big", 0)
    airflow.add("eventbridge.rule.busy", 4, free=1)
    with AirflowPools(airflow.connection()) as client:
        found = client.ensure({"eventbridge.rule.big": 3, "eventbridge.rule.busy": 9, "eventbridge.rule.new": 2})

    assert airflow.pools["eventbridge.rule.big"]["slots"] == 0
    assert {
        "default_pool": PoolSlots(128, 128),
        "eventbridge.rule.big": PoolSlots(0, 0),
        "eventbridge.rule.busy": PoolSlots(4, 1),
        "eventbridge.rule.new": PoolSlots(2, 2),
    } == found


def test_nothing_is_posted_if_all_pools_exist(airflow: FakeAirflow) -> None:
    """The normal case is one login and one page, as it adds to the latency of every batch."""
    with AirflowPools(airflow.connection()) as client:
        client.ensure({"default_pool": 1})

    assert airflow.requests == [("POST", "/auth/token"), ("GET", "/api/v2/pools")]


def test_pools_on_several_pages_are_all_read(airflow: FakeAirflow) -> None:
    """250 pools take three pages, and none counts as missing."""
    for number in range(250):
        airflow.add(f"p{number}", 1)
    with AirflowPools(airflow.connection()) as client:
        found = client.ensure({f"p{number}": 7 for number in range(250)})

    assert ("POST", "/api/v2/pools") not in airflow.requests
    assert len(found) == 251
    assert {PoolSlots(1, 1)} == {found[f"p{number}"] for number in range(250)}


@pytest.mark.parametrize("name", ["eventbridge.rule.new", "night jobs/eu #1?"])
def test_a_pool_that_another_runner_created_meanwhile_is_used_as_it_is(airflow: FakeAirflow, name: str) -> None:
    """Two concurrent `listen` tasks both create the pool; the slower one gets the other's slots, whatever its name."""
    airflow.raced.add(name)
    with AirflowPools(airflow.connection()) as client:
        assert PoolSlots(99, 99) == client.ensure({name: 2})[name]


def test_a_pool_without_limit_counts_as_large(airflow: FakeAirflow) -> None:
    """Airflow returns -1 slots and -1 open slots for no limit."""
    airflow.add("endless", -1, free=-1)
    with AirflowPools(airflow.connection()) as client:
        assert client.pools()["endless"].free > 1_000


def test_an_overdrawn_pool_has_no_free_slot(airflow: FakeAirflow) -> None:
    """A pool that was reduced below its running tasks has negative open slots; none is free."""
    airflow.add("cut", 1, free=-3)
    with AirflowPools(airflow.connection()) as client:
        assert PoolSlots(1, 0) == client.pools()["cut"]


def test_a_refused_login_names_the_connection(airflow: FakeAirflow) -> None:
    """The error has the request, the response and the connection to fix, but not the password."""
    with AirflowPools(airflow.connection("wrong-secret")) as client, pytest.raises(AirflowError) as error:
        client.pools()

    assert "401" in str(error.value)
    assert "eventbridge_airflow" in str(error.value)
    assert "wrong-secret" not in str(error.value)


def test_an_unreachable_airflow_is_an_airflow_error(airflow: FakeAirflow) -> None:
    """A refused connection is an infrastructure error."""
    airflow.server_close()
    with AirflowPools(airflow.connection(), timeout_seconds=1) as client, pytest.raises(AirflowError):
        client.pools()


def test_broken_rule_files_create_no_pool_and_stop_no_task(
    airflow: FakeAirflow, home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A batch in progress needs only the existing pools; an alarm lists the errors in the rule files."""
    (Path(os.environ["EVENTBRIDGE_RULES_FOLDER"]) / "wrong.yaml").write_text("rules: [")
    monkeypatch.setenv("AIRFLOW_CONN_EVENTBRIDGE_AIRFLOW", f"http://admin:right@127.0.0.1:{airflow.server_port}/http")
    with stage() as runtime:
        found = confirmed_pools(runtime)

    assert {"default_pool": PoolSlots(128, 128)} == found
    assert "wrong.yaml" in caplog.text


def test_an_operators_slots_win_until_the_rule_file_changes(airflow: FakeAirflow, home: Path) -> None:
    """A pool from the rule file keeps a manual change, also after a restart, until the file has another number."""
    with stage() as runtime, AirflowPools(airflow.connection()) as client:
        apply_slots(runtime.ledger, client, rules(big=(None, 3)))
        airflow.add("eventbridge.rule.big", 7)
        assert apply_slots(runtime.ledger, client, rules(big=(None, 3)))["eventbridge.rule.big"].slots == 7
    with stage() as runtime, AirflowPools(airflow.connection()) as client:
        assert apply_slots(runtime.ledger, client, rules(big=(None, 3)))["eventbridge.rule.big"].slots == 7
        (seen,) = runtime.ledger.pools.applied_slots().values()
        assert (seen.pool, seen.slots, seen.seen_slots) == ("eventbridge.rule.big", 3, 7)

        assert apply_slots(runtime.ledger, client, rules(big=(None, 4)))["eventbridge.rule.big"].slots == 4
        (seen,) = runtime.ledger.pools.applied_slots().values()

    assert airflow.pools["eventbridge.rule.big"]["slots"] == 4
    assert (seen.slots, seen.seen_slots) == (4, 4)


def test_a_pool_older_than_its_slots_in_the_rule_file_stays_the_operators(airflow: FakeAirflow, home: Path) -> None:
    """Its creator is unknown, so it is not resized until the rule file changes."""
    airflow.add("eventbridge.rule.big", 0)
    with stage() as runtime, AirflowPools(airflow.connection()) as client:
        assert apply_slots(runtime.ledger, client, rules(big=(None, 3)))["eventbridge.rule.big"].slots == 0
        assert apply_slots(runtime.ledger, client, rules(big=(None, 5)))["eventbridge.rule.big"].slots == 5
