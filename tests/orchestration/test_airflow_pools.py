"""The pools client against an HTTP server that answers as Airflow's API does; end to end it meets the real one."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from eventbridge.config.connection import Connection
from eventbridge.decision.chunking import PoolSlots
from eventbridge.orchestrate.pools import SHARED_POOLS, AirflowError, AirflowPools, apply_slots, wanted_pools
from eventbridge.orchestrate.tasks import confirmed_pools, stage
from eventbridge.rule import Bus, Rule, RuleSet


class FakeAirflow(ThreadingHTTPServer):
    """Pools in memory behind Airflow's paths; pages of 100 at most; `raced` appear when somebody tries to make them."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pools: dict[str, dict[str, Any]] = {}
        self.raced: set[str] = set()
        self.requests: list[tuple[str, str]] = []
        self.add("default_pool", 128)

    def add(self, name: str, slots: int, free: int | None = None) -> dict[str, Any]:
        """Make a pool."""
        self.pools[name] = {"name": name, "slots": slots, "open_slots": slots if free is None else free}
        return self.pools[name]

    def connection(self, password: str = "right") -> Connection:
        """Return the connection to it."""
        return Connection("eventbridge_airflow", "http", "127.0.0.1", self.server_port, "admin", password, "http")


class _Handler(BaseHTTPRequestHandler):
    server: FakeAirflow

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_PATCH(self) -> None:
        self._serve("PATCH")

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def _serve(self, method: str) -> None:
        url = urlsplit(self.path)
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        self.server.requests.append((method, url.path))
        status, answer = self._answer(method, url.path, parse_qs(url.query), body)
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _answer(self, method: str, path: str, query: dict[str, list[str]], body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/auth/token":
            right = body == {"username": "admin", "password": "right"}
            return (201, {"access_token": "token"}) if right else (401, {"detail": "Invalid credentials"})
        if self.headers.get("Authorization") != "Bearer token":
            return 401, {"detail": "no token"}
        pools = self.server.pools
        if method == "GET" and path == "/api/v2/pools":
            offset, limit = int(query["offset"][0]), min(100, int(query["limit"][0]))
            return 200, {"pools": list(pools.values())[offset : offset + limit], "total_entries": len(pools)}
        if method == "PATCH":
            assert query == {"update_mask": ["slots"]}
            return 200, self.server.add(path.rpartition("/")[2], body["slots"])
        if method == "GET":
            return 200, pools[path.rpartition("/")[2]]
        if body["name"] in self.server.raced:
            self.server.add(body["name"], 99)
        if body["name"] in pools:
            return 409, {"detail": "exists"}
        return 201, self.server.add(body["name"], body["slots"])


@pytest.fixture
def airflow() -> Iterator[FakeAirflow]:
    """Serve the fake."""
    with FakeAirflow() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def rules(**pools: tuple[str | None, int | None]) -> RuleSet:
    """Return a rule set with one rule for each (pool, concurrency)."""
    made = {
        name: Rule(name=name, bus="b", runner="b", pattern={}, targets={}, pool=pool, concurrency=concurrency)
        for name, (pool, concurrency) in pools.items()
    }
    return RuleSet(buses={"b": Bus(name="b")}, rules=made)


def test_a_rules_own_pool_has_the_slots_of_its_file() -> None:
    """`concurrency` makes pool rule.<rule>; a named pool without a size gets 8; the shared ones are always wanted."""
    wanted = wanted_pools(rules(big=(None, 3), small=(None, None), nightly=("movement", None), sized=("own", 5)))

    assert wanted == {**SHARED_POOLS, "rule.big": 3, "movement": 8, "own": 5}


def test_absent_pools_are_made_and_existing_ones_left_alone(airflow: FakeAirflow) -> None:
    """An operator's slots win over the file's; all pools come back with their slots and free slots."""
    airflow.add("rule.big", 0)
    airflow.add("rule.busy", 4, free=1)
    with AirflowPools(airflow.connection()) as client:
        found = client.ensure({"rule.big": 3, "rule.busy": 9, "rule.new": 2})

    assert airflow.pools["rule.big"]["slots"] == 0
    assert {
        "default_pool": PoolSlots(128, 128),
        "rule.big": PoolSlots(0, 0),
        "rule.busy": PoolSlots(4, 1),
        "rule.new": PoolSlots(2, 2),
    } == found


def test_nothing_is_posted_when_all_pools_are_there(airflow: FakeAirflow) -> None:
    """The everyday case is one log-in and one page: it is on the way of every batch."""
    with AirflowPools(airflow.connection()) as client:
        client.ensure({"default_pool": 1})

    assert airflow.requests == [("POST", "/auth/token"), ("GET", "/api/v2/pools")]


def test_more_pools_than_a_page_are_all_seen(airflow: FakeAirflow) -> None:
    """250 pools come in three pages; none is taken for absent."""
    for number in range(250):
        airflow.add(f"p{number}", 1)
    with AirflowPools(airflow.connection()) as client:
        found = client.ensure({f"p{number}": 7 for number in range(250)})

    assert ("POST", "/api/v2/pools") not in airflow.requests
    assert len(found) == 251
    assert {PoolSlots(1, 1)} == {found[f"p{number}"] for number in range(250)}


def test_a_pool_that_another_runner_made_meanwhile_is_taken_as_it_is(airflow: FakeAirflow) -> None:
    """Two listens that start at once both want the pool; the slower one sees the winner's slots."""
    airflow.raced.add("rule.new")
    with AirflowPools(airflow.connection()) as client:
        assert PoolSlots(99, 99) == client.ensure({"rule.new": 2})["rule.new"]


def test_a_pool_without_limit_counts_as_large(airflow: FakeAirflow) -> None:
    """Airflow says -1 slots and -1 open slots for no limit."""
    airflow.add("endless", -1, free=-1)
    with AirflowPools(airflow.connection()) as client:
        assert client.pools()["endless"].free > 1_000


def test_an_overdrawn_pool_has_no_free_slot(airflow: FakeAirflow) -> None:
    """A pool that was cut below what runs in it has negative open slots; none is free."""
    airflow.add("cut", 1, free=-3)
    with AirflowPools(airflow.connection()) as client:
        assert PoolSlots(1, 0) == client.pools()["cut"]


def test_a_refused_login_names_the_connection(airflow: FakeAirflow) -> None:
    """The error says what was asked, what was answered, and which connection to mend; never the password."""
    with AirflowPools(airflow.connection("wrong-secret")) as client, pytest.raises(AirflowError) as error:
        client.pools()

    assert "401" in str(error.value)
    assert "eventbridge_airflow" in str(error.value)
    assert "wrong-secret" not in str(error.value)


def test_an_airflow_that_is_not_there_is_an_airflow_error(airflow: FakeAirflow) -> None:
    """Refused connections are infrastructure, not tracebacks."""
    airflow.server_close()
    with AirflowPools(airflow.connection(), timeout_seconds=1) as client, pytest.raises(AirflowError):
        client.pools()


def test_broken_rule_files_make_no_pool_and_stop_no_task(
    airflow: FakeAirflow, home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A batch under way needs the pools there are, not today's rules; an alarm lists the mistakes."""
    (Path(os.environ["EVENTBRIDGE_RULES_FOLDER"]) / "wrong.yaml").write_text("rules: [")
    monkeypatch.setenv("AIRFLOW_CONN_EVENTBRIDGE_AIRFLOW", f"http://admin:right@127.0.0.1:{airflow.server_port}/http")
    with stage() as work:
        found = confirmed_pools(work)

    assert {"default_pool": PoolSlots(128, 128)} == found
    assert "wrong.yaml" in caplog.text


def test_an_operators_slots_win_until_the_file_says_something_else(airflow: FakeAirflow, home: Path) -> None:
    """Made by the file, changed by hand and kept, over a restart too; another number in the file counts again."""
    with stage() as work, AirflowPools(airflow.connection()) as client:
        apply_slots(work.ledger, client, rules(big=(None, 3)))
        airflow.add("rule.big", 7)
        assert apply_slots(work.ledger, client, rules(big=(None, 3)))["rule.big"].slots == 7
    with stage() as work, AirflowPools(airflow.connection()) as client:
        assert apply_slots(work.ledger, client, rules(big=(None, 3)))["rule.big"].slots == 7
        (seen,) = work.ledger.applied_slots().values()
        assert (seen.pool, seen.slots, seen.seen_slots) == ("rule.big", 3, 7)

        assert apply_slots(work.ledger, client, rules(big=(None, 4)))["rule.big"].slots == 4
        (seen,) = work.ledger.applied_slots().values()

    assert airflow.pools["rule.big"]["slots"] == 4
    assert (seen.slots, seen.seen_slots) == (4, 4)


def test_a_pool_that_was_there_before_its_file_gave_it_slots_stays_the_operators(
    airflow: FakeAirflow, home: Path
) -> None:
    """Nobody knows who made it: it is left alone, until the file changes."""
    airflow.add("rule.big", 0)
    with stage() as work, AirflowPools(airflow.connection()) as client:
        assert apply_slots(work.ledger, client, rules(big=(None, 3)))["rule.big"].slots == 0
        assert apply_slots(work.ledger, client, rules(big=(None, 5)))["rule.big"].slots == 5
