"""`eventbridge deliver` on a Spark Connect server that runs already."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from spark.own_server import own_server
from spark.site_commands import commands_in, environment

from eventbridge.spark.server import SparkConnectServer
from eventbridge.spark.session import redact_address

RULES = """
buses: {orders: {source: {type: embedded, start_at: earliest}}}
rules:
  all-orders:
    bus: orders
    pattern: {type: [order.placed]}
    targets: {archive: {type: file, path: archive.jsonl}}
"""


@pytest.mark.parametrize("named_by", ["option", "setting"])
def test_deliver_uses_the_server_it_is_given(named_by: str, spark_server: SparkConnectServer, tmp_path: Path) -> None:
    """By --spark or by EVENTBRIDGE_SPARK_REMOTE: events are routed there, and no server is started or ended."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "orders.yaml").write_text(RULES)
    event = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "order.placed"}
    (tmp_path / "orders.jsonl").write_text(json.dumps(event))
    option = ["--spark", redact_address(spark_server.url)] if named_by == "option" else []
    token = {"SPARK_CONNECT_AUTHENTICATE_TOKEN": spark_server.token}
    setting = token if option else {"EVENTBRIDGE_SPARK_REMOTE": spark_server.url}

    run = partial(commands_in(tmp_path, setting), quiet=True)

    run("events", "publish", "orders", "orders.jsonl")
    idle = json.loads(run("deliver", "--runner", "orders", "--until-idle", "--json", *option))

    assert idle == {"batches": 1, "retry_batches": 0, "next_due_at": None, "pending": 0, "on_hold": 0}
    assert json.loads((tmp_path / "archive.jsonl").read_text()) == event
    assert not (tmp_path / ".eventbridge" / "spark").exists()
    assert spark_server.pid


def test_sigterm_ends_the_command_while_spark_computes_without_end(tmp_path: Path) -> None:
    """It waits 15 s and leaves the batch as it is; the next runs hold the rule and, once it is changed, deliver."""
    endless = " OR ".join(f"data:long::string RLIKE '.*a.*b{number}'" for number in range(100))  # a second each
    rule = "all-orders:\n    where: "
    (tmp_path / "rules").mkdir()
    rules = tmp_path / "rules" / "orders.yaml"
    rules.write_text(RULES.replace("all-orders:", f'{rule}"{endless}"'))
    event = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "order.placed"}
    (tmp_path / "orders.jsonl").write_text(json.dumps(event | {"data": {"long": "a" * 843}}))
    with own_server(tmp_path / "spark", master="local[6]") as server:  # the expression keeps some of its slots
        settings = {"EVENTBRIDGE_SPARK_REMOTE": server.url, "EVENTBRIDGE_ROUTE_RULE_CPU_BUDGET": "300"}
        run = partial(commands_in(tmp_path, settings), quiet=True)
        run("events", "publish", "orders", "orders.jsonl")
        deliver = [sys.executable, "-m", "eventbridge.cli", "deliver", "--runner", "orders", "--until-idle"]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            deliver, cwd=tmp_path, env=environment(settings), stdout=pipe, stderr=pipe, text=True
        ) as process:
            try:
                _wait_for_work(server, process)
                process.send_signal(signal.SIGTERM)
                began = time.monotonic()
                _, err = process.communicate(timeout=100)
            finally:
                process.kill()
        took = time.monotonic() - began

        assert process.returncode == 143, err
        assert 14 <= took < 25
        assert "The process was stopped before Spark finished the job. The batch keeps its events" in err
        assert "Traceback" not in err
        assert not (tmp_path / "archive.jsonl").exists()
        quick = partial(commands_in(tmp_path, settings | {"EVENTBRIDGE_ROUTE_RULE_CPU_BUDGET": "1"}))
        quick("deliver", "--runner", "orders", "--until-idle")  # the batch has the rules of its plan: holds the rule
        rules.write_text(RULES)
        quick("deliver", "--runner", "orders", "--until-idle", "--wait", "60")
    assert json.loads((tmp_path / "archive.jsonl").read_text())["id"] == "1"
    run("audit")


def _wait_for_work(server: SparkConnectServer, process: subprocess.Popen[str]) -> None:
    """Return once the server has computed for 20 s of CPU time since now: more than what every batch needs."""
    ticks = os.sysconf("SC_CLK_TCK")

    def used_seconds() -> float:
        fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / ticks

    until, begin = time.monotonic() + 120, used_seconds()
    while used_seconds() < begin + 20:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.2)
