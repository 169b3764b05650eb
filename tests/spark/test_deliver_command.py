"""`eventbridge deliver` on a Spark Connect server that runs already."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from spark.site_commands import commands_in

from eventbridge.spark.channel import without_token
from eventbridge.spark.server import SparkConnectServer

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
    option = ["--spark", without_token(spark_server.url)] if named_by == "option" else []
    token = {"SPARK_CONNECT_AUTHENTICATE_TOKEN": spark_server.token}
    setting = token if option else {"EVENTBRIDGE_SPARK_REMOTE": spark_server.url}

    run = partial(commands_in(tmp_path, setting), quiet=True)

    run("bus", "publish", "orders", "orders.jsonl")
    idle = json.loads(run("deliver", "--runner", "orders", "--until-idle", "--json", *option))

    assert idle == {"batches": 1, "retry_batches": 0, "next_due_at": None, "pending": 0, "held": 0}
    assert json.loads((tmp_path / "archive.jsonl").read_text()) == event
    assert not (tmp_path / ".eventbridge" / "spark").exists()
    assert spark_server.pid
