"""The target type `delta`: each delivery is one row of a Delta table, however often its span is sent."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from demo.s3_server import S3Server
from pipeline.delivering import Sending, settled
from pipeline.dying import DIED, DONE, push_that_dies
from stored import dead_letters

from eventbridge.clients.s3.access import S3Access, S3Clients
from eventbridge.config.connection import connections_from_environment
from eventbridge.config.target_locations import TargetLocations
from eventbridge.delivery.push import push
from eventbridge.event.ids import delivery_id_text
from eventbridge.pipeline.commit.stage import commit
from eventbridge.repair.audit import audit
from eventbridge.rules.load import load_rules
from eventbridge.targets.open import open_target
from eventbridge.targets.protocol import DeliverySpan, Request, SpanResponse

PAGE = (Path(__file__).parents[3] / "docs" / "howto" / "connect-delta.md").read_text()
(RULES,) = re.findall(r"^```yaml rules\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
(READING,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

COLUMNS = pa.schema([("delivery_id", pa.string()), ("id", pa.string()), ("amount", pa.float64())])


def now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Lake:
    """A table in a folder of its own, and targets that write there."""

    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / "lake" / "orders"

    def create(self, columns: pa.Schema = COLUMNS, **more: Any) -> DeltaTable:
        self.path.parent.mkdir(exist_ok=True)
        return DeltaTable.create(str(self.path), columns, **more)

    def rows(self) -> list[dict[str, Any]]:
        return DeltaTable(str(self.path)).to_pyarrow_table().to_pylist()

    @property
    def version(self) -> int:
        return DeltaTable(str(self.path)).version()

    def opened(self, fields: str = "") -> Any:
        rules = self.folder / "delta-rules"
        rules.mkdir(exist_ok=True)
        (rules / "r.yaml").write_text(
            "buses: {b: {source: {type: embedded}}}\n"
            "rules: {r: {bus: b, pattern: {}, targets: {rows: {type: delta, table: lake/orders"
            f"{fields and ', '}{fields}}}}}}}}}\n"
        )
        target = load_rules(rules).rules["r"].destinations["rows"]
        locations = TargetLocations((self.folder,), (f"{self.folder}/own/",))
        return open_target("r", target, lambda name: pytest.fail(name), now, (), locations)

    def send(self, span: DeliverySpan, fields: str = "") -> SpanResponse:
        with closing(self.opened(fields)) as target:
            found: SpanResponse | None = target.deliver_span(span, now() + timedelta(seconds=60))
            target.flush()
        assert found is not None
        return found


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def span_of(*payloads: object) -> DeliverySpan:
    bodies = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in payloads]
    ids = [uuid.uuid4().bytes for _ in bodies]
    return DeliverySpan(uuid.uuid4().hex, now(), pa.array(ids, pa.binary()), pa.array(bodies, pa.binary()))


def requests_of(*payloads: object) -> list[Request]:
    bodies = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in payloads]
    return [Request(number, str(uuid.uuid4()), body, "application/json") for number, body in enumerate(bodies)]


def test_a_span_is_in_the_table_once_however_often_it_is_sent(lake: Lake) -> None:
    """In one transaction; later and earlier spans may come between."""
    lake.create()
    first, second = span_of({"id": "a", "amount": 1}, {"id": "b"}), span_of({"id": "c"})
    for span in (first, second, first, second, first):
        response = lake.send(span)
        assert (response.response.accepted, response.response.error, response.rejected) == (True, None, {})

    assert lake.version == 2
    rows = {row["delivery_id"]: (row["id"], row["amount"]) for row in lake.rows()}
    ids = [delivery_id_text(each) for each in (*first.delivery_ids.to_pylist(), *second.delivery_ids.to_pylist())]
    assert rows == dict(zip(ids, [("a", 1.0), ("b", None), ("c", None)], strict=True))


def test_a_payload_that_does_not_fit_is_rejected_alone(lake: Lake) -> None:
    """The other rows are written; a repetition rejects the same rows, although the columns are others by then."""
    lake.create()
    span = span_of({"id": "a"}, {"id": "b", "city": "Ulm"}, {"id": "c", "amount": "x"}, b"[1]", {"id": "d"})
    first = lake.send(span)
    write_deltalake(str(lake.path), pa.table({"city": ["Bonn"]}), mode="append", schema_mode="merge")
    again = lake.send(span)

    ids = span.delivery_ids.to_pylist()
    assert first.response.accepted
    assert again.response.accepted
    assert set(first.rejected) == set(again.rejected) == set(ids[1:4])
    assert {each.error_class for each in first.rejected.values()} == {"MessageRefused"}
    assert "has no column 'city'. Add it" in str(first.rejected[ids[1]].error)
    assert "the columns that the table had" in str(again.rejected[ids[1]].error)
    assert "got `str` - at `$.amount`" in str(again.rejected[ids[2]].error)
    assert sorted(row["id"] for row in lake.rows() if row["id"]) == ["a", "d"]


def test_the_pages_example_writes_rows_that_its_python_reads(
    sending: Sending,
    s3_server: S3Server,
    order: Callable[..., bytes],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In a table in S3 that the rule creates, with its types and partitions."""
    sending.site.environ["EVENTBRIDGE_CONN_SHOP_S3"] = s3_server.connection
    folder = f"s3://tests/{uuid.uuid4().hex}"
    sending.write(RULES.replace("s3://lake", folder))
    with sending.site.bus(topics=("events",)) as bus:
        data = {"id": "A-1", "amount": 2_000.25, "country": "DE"}
        events = (
            order("1", data=data, time="2026-11-30T10:00:00Z"),
            order("2", data=data | {"id": "A-2", "country": "FR"}),
        )
        bus.publish([(event, None) for event in events])
    sending.deliver()

    assert [each["detail"] for each in dead_letters(sending.runtime)] == []
    access = S3Access.from_connection(connections_from_environment({"EVENTBRIDGE_CONN_S3": s3_server.connection})("s3"))
    for name, value in S3Clients(access).object_store_options(30).items():
        monkeypatch.setenv(name.upper(), value)
    found: dict[str, Any] = {}
    exec(READING.replace("s3://lake", folder), found)
    rows = found["table"].to_pyarrow_table().sort_by("order_id").to_pylist()
    at, amount = datetime(2026, 11, 30, 10, tzinfo=UTC), Decimal("2000.25")
    assert [tuple(row.values())[1:] for row in rows] == [("A-1", amount, at, "DE"), ("A-2", amount, None, "FR")]
    assert "A-2" in capsys.readouterr().out
    assert found["table"].metadata().partition_columns == ["country"]
    assert audit(sending.runtime).differences == ()


def test_a_push_may_die_anywhere_and_no_row_is_lost_or_twice(
    sending: Sending, site: Any, tmp_path: Path, order: Callable[..., bytes]
) -> None:
    """Killed around any transaction, response or record: each event is in exactly one row afterwards."""
    site.environ["EVENTBRIDGE_BATCH_TIMEOUT"] = "3600"
    transform = 'transform: {form: TEMPLATE, value: {id: $.id}, template: \'{"id": "${id}"}\'}'
    batch = sending.routed(5, crm=f"{{type: delta, table: lake/orders, columns: {{id: string}}, {transform}}}")

    for number in count(1):
        wreck = site.copy(tmp_path / f"wreck-{number}")
        code = push_that_dies(wreck.folder, wreck.environ, batch.batch_id, number)
        runtime = wreck.reopen()
        push(runtime, batch.batch_id, 0)
        Sending(wreck, sending.receiver, sending.order).settle(batch)

        assert {row.status for row in settled(runtime, batch.batch_id)["crm"]} == {"delivered"}
        table = DeltaTable(str(wreck.folder / "lake" / "orders")).to_pyarrow_table()
        assert (table.num_rows, len(set(table["id"].to_pylist()))) == (5, 5)
        assert commit(runtime, batch.batch_id)
        assert audit(runtime).differences == ()
        if code == DONE:
            break
        assert code == DIED
    assert number > 3
