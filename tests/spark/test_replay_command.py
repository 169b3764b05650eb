"""`eventbridge replays start` end to end: events are delivered, and delivered again from the archive, on Spark."""

from __future__ import annotations

import json
from pathlib import Path

from spark.site_commands import commands_in

from eventbridge.spark.server import SparkConnectServer

RULES = """
buses: {orders: {source: {type: embedded, start_at: earliest}}}
rules:
  all-orders:
    bus: orders
    pattern: {type: [order.placed]}
    targets: {archive: {type: file, path: archive.jsonl}}
"""


def test_a_bus_is_replayed_by_command(spark_server: SparkConnectServer, tmp_path: Path) -> None:
    """A dry run counts, the replay delivers matching events, show and list report it, the audit finds no difference."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "orders.yaml").write_text(RULES)
    events = [{"specversion": "1.0", "id": str(n), "source": "/shop", "type": "order.placed"} for n in range(4)]
    (tmp_path / "orders.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events))

    run = commands_in(tmp_path, {"EVENTBRIDGE_SPARK_REMOTE": spark_server.url})

    run("events", "publish", "orders", "orders.jsonl")
    run("deliver", "--runner", "orders", "--until-idle")
    chosen = ("orders", "--from", "1h", "--pattern", '{"id": ["1", "3"]}')
    would = json.loads(run("replays", "start", *chosen, "--dry-run", "--json"))
    output = run("replays", "start", *chosen)
    (listed,) = json.loads(run("replays", "list", "--json"))
    begun = listed["replay_id"][:8]
    shown = json.loads(run("replays", "show", begun, "--json"))
    resumed = run("replays", "resume", begun)

    assert would.pop("files") >= 1  # as many as the partitions that the events are on
    assert would == {
        "read": 4,
        "taken": 2,
        "deliveries": {"all-orders/archive": 2},
        "samples": {"all-orders/archive": ["1", "3"]},
        "more": False,
    }
    assert output.endswith(" done: 2 events taken, 2 delivered. Nothing of it is left to do.\n")
    assert shown == listed
    assert (listed["state"], listed["read"], listed["taken"]) == ("done", 4, 2)
    assert listed["outcomes"] == {"delivered": 2}
    assert listed["selection"] == {"pattern": '{"id": ["1", "3"]}', "as_of": "current"}
    assert resumed == output
    assert "stays done" in run("replays", "cancel", begun)
    assert "stays done" in run("replays", "pause", begun)
    assert "no replay 'zz'" in run("replays", "show", "zz", code=2)
    assert "Did you mean orders?" in run("replays", "start", "order", "--from", "1h", code=2)
    lines = (tmp_path / "archive.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["id"] for line in lines) == ["0", "1", "1", "2", "3", "3"]
    assert json.loads(run("audit", "--json"))["differences"] == []
