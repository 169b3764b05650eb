"""The plug-in in a real installation: rule files, a bus, deliveries and dead letters."""

import json
import sqlite3

from eventbridge.testing.plug_ins import Installation

RULES = """
buses:
  orders: {source: {type: folder, folder: DIR}}
rules:
  all:
    bus: orders
    pattern: {}
    targets:
      table:
        type: sqlite
        database: DIR/orders.sqlite
        table: TABLE
        max_size: 50
        transform: {form: redact, value: {names: [email]}}
"""


def rules(folder, table="orders"):
    return RULES.replace("DIR", str(folder)).replace("TABLE", table)


def test_events_of_files_become_rows_and_dead_letters(tmp_path):
    for number, name in enumerate(["a", "b" * 100]):
        data = {"id": number, "name": name, "price": 1.50, "email": "a@b.example"}
        event = {"specversion": "1.0", "id": str(number), "source": "/shop", "type": "order", "data": data}
        (tmp_path / f"{number}.json").write_text(json.dumps(event))

    with Installation(tmp_path / "installation", rules(tmp_path)) as installation:
        assert installation.rule_errors() == []
        assert installation.check("all", "table") is None
        installation.deliver("orders")
        (letter,) = installation.dead_letters()

    assert [row for _, row in sqlite3.connect(tmp_path / "orders.sqlite").execute("SELECT * FROM orders")] == [
        '{"id":0,"name":"a","price":1.5}'
    ]
    assert (letter["reason"], letter["detail"]) == ("non_retryable", "Rejected: the payload has 130 bytes")
    assert not list(tmp_path.glob("*.json"))


def test_a_wrong_setting_is_an_error_with_its_line(tmp_path):
    with Installation(tmp_path, rules(tmp_path, table="Orders")) as installation:
        (error,) = installation.rule_errors()

    assert error.startswith("12:16: $.rules.all.targets.table.table: table: string should match pattern")
