"""`eventbridge rules backtest` and `rules diff` end to end: candidates run over delivered events, on Spark."""

from __future__ import annotations

import json
from pathlib import Path

from spark.site_commands import commands_in

from eventbridge.spark.server import SparkConnectServer

RULES = """
buses: {orders: {source: {type: embedded, start_at: earliest}}}
rules:
  large-orders:
    bus: orders
    pattern: {type: [order.placed], data: {amount: [{numeric: [">", 20]}]}}
    targets: {archive: {type: file, path: archive.jsonl}}
"""

CANDIDATE = """
rules:
  large-orders:
    bus: orders
    pattern: {type: [order.placed], data: {amount: [{numeric: [">", 5]}]}}
    targets:
      archive:
        type: file
        path: archive.jsonl
        transform: {form: TEMPLATE, value: {id: $.data.id}, template: '{"order": "${id}"}', missing: error}
"""

#: A candidate that only Spark can evaluate, of the same name.
IN_SQL = """
rules:
  large-orders:
    bus: orders
    pattern: {type: [order.placed]}
    where: CAST(data:amount AS INT) % 20 = 0
    targets: {archive: {type: file, path: archive.jsonl, transform: {form: SQL, value: "concat('order ', id)"}}}
"""


def test_candidates_are_run_over_the_archive_and_compared(spark_server: SparkConnectServer, tmp_path: Path) -> None:
    """Both report would-be deliveries as a table and as JSON; nothing is delivered; Spark evaluates SQL."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "orders.yaml").write_text(RULES)
    (tmp_path / "candidate.yaml").write_text(CANDIDATE)
    (tmp_path / "in-sql.yaml").write_text(IN_SQL)
    events = [
        {"specversion": "1.0", "id": str(n), "source": "/shop", "type": "order.placed"}
        | {"data": {"amount": n * 10} | ({} if n == 3 else {"id": f"A-{n}"})}
        for n in range(5)
    ]
    (tmp_path / "orders.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events))

    run = commands_in(tmp_path, {"EVENTBRIDGE_SPARK_REMOTE": spark_server.url})

    run("events", "publish", "orders", "orders.jsonl")
    run("deliver", "--runner", "orders", "--until-idle")
    output = run("rules", "backtest", "candidate.yaml", "--from", "1h")
    document = json.loads(run("rules", "backtest", "in-sql.yaml", "--from", "1h", "--json", "--keep"))
    compared = json.loads(run("rules", "diff", "large-orders", "candidate.yaml", "--from", "1h", "--json"))

    assert output.startswith("5 archived events of bus orders read\nWould be delivered, times in UTC\n")
    assert "large-orders/archive        4       1" in output
    assert "${id}: the event has no $.data.id       1  3" in output
    assert '{"order": "A-1"}' in output
    (rule,) = document["rules"]
    (target,) = rule["targets"]
    assert (document["events"], rule["matched"], rule["left_out"]) == (5, 3, 0)
    assert sorted(each["output"]["payload"] for each in target["samples"]) == ["order 0", "order 2", "order 4"]
    (pair,) = compared["pairs"]
    assert (pair["both"], pair["gained"], pair["lost"]) == (2, 2, 0)
    assert sorted(each["event_id"] for each in pair["gained_samples"]) == ["1", "2"]
    assert pair["targets"][0]["changed"] == 2
    kept = sorted(path.suffix for path in (tmp_path / ".eventbridge").rglob("reports/backtest/*/*"))
    assert kept == [".json", ".md"]
    left = (tmp_path / ".eventbridge").rglob(f"{document['backtest_id']}/**/*")
    assert [path for path in left if path.is_file()] == []
    lines = (tmp_path / "archive.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["id"] for line in lines) == ["3", "4"]
    assert json.loads(run("audit", "--json"))["differences"] == []
