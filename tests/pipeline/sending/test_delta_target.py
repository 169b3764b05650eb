"""The target type `delta`: each delivery is one row of a Delta table, however often its span is sent."""

from __future__ import annotations

import json
import re
import shutil
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from demo.s3_server import S3Server
from pipeline.delivering import Sending, settled
from pipeline.dying import DIED, DONE, push_that_dies
from stored import dead_letters

from eventbridge.clients.s3.access import S3Access, S3Clients
from eventbridge.config.connection import Connection, connections_from_environment
from eventbridge.config.target_locations import TargetLocations
from eventbridge.delivery.push import push
from eventbridge.errors import RuleFileError, UserError
from eventbridge.event.ids import delivery_id_text
from eventbridge.pipeline.commit.stage import commit
from eventbridge.repair.audit import audit
from eventbridge.rules.load import load_rules
from eventbridge.targets.delta import target as delta
from eventbridge.targets.delta.fields import obstacle_of
from eventbridge.targets.open import open_target
from eventbridge.targets.protocol import DeliverySpan, Request, SpanResponse
from eventbridge.upkeep.maintain import maintain

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
    table: str = "lake/orders"

    def connection(self, name: str) -> Connection:
        pytest.fail(f"a table in a folder needs no connection {name}")

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

    def rule(self, fields: str = "") -> Any:
        rules = self.folder / f"rules-{uuid.uuid4().hex}"
        rules.mkdir()
        fields = fields if "table:" in fields else f"table: {self.table}, {fields}"
        (rules / "r.yaml").write_text(
            "buses: {b: {source: {type: embedded}}}\n"
            f"rules: {{r: {{bus: b, pattern: {{}}, targets: {{rows: {{type: delta, {fields}}}}}}}}}\n"
        )
        return load_rules(rules).rules["r"].destinations["rows"]

    def opened(self, fields: str = "") -> Any:
        locations = TargetLocations((self.folder,), (f"{self.folder}/own/", f"{self.folder}/around/ledger.sqlite"))
        return open_target("r", self.rule(fields), self.connection, now, (), locations)

    def send(self, span: DeliverySpan, fields: str = "") -> SpanResponse:
        with closing(self.opened(fields)) as target:
            found: SpanResponse | None = target.deliver_span(span, now() + timedelta(seconds=60))
            target.flush()
        assert found is not None
        return found


class S3Lake(Lake):
    """A table in S3 below a prefix of its own, which the rule creates."""

    def __init__(self, folder: Path, server: S3Server, extra: dict[str, str] | None = None) -> None:
        self.prefix = uuid.uuid4().hex
        columns = "connection: c, timeout: 2s, columns: {id: string}"
        super().__init__(folder, f"'s3://tests/{self.prefix}/orders', {columns}")
        found = connections_from_environment({"EVENTBRIDGE_CONN_C": server.connection})("c")
        self._connection = replace(found, extra={**found.extra, **(extra or {})})

    def connection(self, name: str) -> Connection:
        return self._connection

    def rows(self) -> list[dict[str, Any]]:
        options = S3Clients(S3Access.from_connection(self._connection)).object_store_options(10)
        table = DeltaTable(f"s3://tests/{self.prefix}/orders", storage_options=options)
        return table.to_pyarrow_table().to_pylist()


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


def test_a_row_that_violates_a_constraint_is_rejected_alone(lake: Lake) -> None:
    """With the name of the constraint, without values, which users without the right for payloads must not see."""
    table = lake.create()
    table.alter.add_constraint({"small": "amount < 100"})
    table.alter.add_constraint({"named": "id <> 'secret-4711'"})
    span = span_of(*({"id": str(n), "amount": n} for n in range(98, 102)), b"no", {"id": "secret-4711", "amount": 1})
    first, again = lake.send(span), lake.send(span)
    (request,) = requests_of({"id": "x", "amount": 200})
    with closing(lake.opened()) as target:
        ((_, response),) = target.deliver([request], now() + timedelta(seconds=60))

    ids = span.delivery_ids.to_pylist()
    for each in (first, again):
        assert each.response.accepted
        assert set(each.rejected) == {ids[2], ids[3], ids[4], ids[5]}, each.response
    assert first.rejected[ids[2]].error == "the row violates the constraint 'small' of the table"
    assert response.error == "the row violates the constraint 'small' of the table"
    assert "4711" not in str(first)
    assert sorted(row["id"] for row in lake.rows()) == ["98", "99"]


def test_an_invariant_and_a_computed_column_reject_single_rows(lake: Lake) -> None:
    """The table computes the column itself, and the row that gives it a value is rejected, or loses it."""
    invariant = {"delta.invariants": json.dumps({"expression": {"expression": "n > 3"}})}
    computed = {"delta.generationExpression": "n * 2"}
    lake.create(
        Schema([Field("n", "long", metadata=invariant), Field("g", "long", nullable=False, metadata=computed)])  # type: ignore[arg-type]  # as pa.Schema
    )
    span = span_of({"n": 1}, {"n": 5}, {"n": 6, "g": 12}, {"n": 7})
    found, again = lake.send(span), lake.send(span)
    ignored = lake.send(span_of({"n": 8, "g": 1}), "new_columns: ignore")

    ids = span.delivery_ids.to_pylist()
    assert {ids.index(each): response.error for each, response in found.rejected.items()} == {
        0: "the row violates the invariant of the column 'n' of the table",
        2: "the table computes the column 'g'. Let the transform leave it out, or write new_columns: ignore",
    }
    assert set(again.rejected) == set(found.rejected)
    assert ignored.rejected == {}
    assert sorted((row["n"], row["g"]) for row in lake.rows()) == [(5, 10), (7, 14), (8, 16)]


def test_a_value_that_is_too_long_for_a_folder_rejects_its_row_alone(lake: Lake) -> None:
    """As that of a partition; all other texts are kept, also those that end a line."""
    texts = ["a/b", "..", "a\nb", "\u2028", "%2e", "\0", "x" * 250]
    fields = "columns: {id: string}, partition_by: [id]"
    span = span_of({"id": "x" * 300}, *({"id": text} for text in texts), {"id": "\u00e4" * 50})
    found = lake.send(span, fields)

    ids = span.delivery_ids.to_pylist()
    assert (found.response.accepted, set(found.rejected)) == (True, {ids[0], ids[-1]})
    assert "the value for 'id' is too long for the name of a folder" in str(found.rejected[ids[0]].error)
    assert sorted(row["id"] for row in lake.rows()) == sorted(texts)


def test_no_row_counts_as_stored_if_the_log_forgot_which_were_rejected(lake: Lake) -> None:
    """Its columns are others by then, so that the table would reject none."""
    table = lake.create(configuration={"delta.logRetentionDuration": "interval 0 seconds"})
    span = span_of({"id": "a"}, {"id": "b", "city": "Ulm"})
    first = lake.send(span)
    same = lake.send(span)
    write_deltalake(table, pa.table({"city": ["Bonn"]}), mode="append", schema_mode="merge")
    table.create_checkpoint()
    until = now() + timedelta(seconds=30)
    while (lake.path / "_delta_log" / f"{1:020}.json").exists() and now() < until:
        table.cleanup_metadata()
    again = lake.send(span)

    ids = span.delivery_ids.to_pylist()
    assert set(first.rejected) == set(same.rejected) == {ids[1]}
    assert set(again.rejected) == set(ids)
    assert "its log no longer shows which" in str(again.rejected[ids[1]].error)
    assert [row["id"] for row in lake.rows() if row["id"]] == ["a"]


def test_a_table_that_stays_open_is_opened_again_now_and_then(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """After 50 spans, or deltalake takes longer for each; after a minute, or it would miss that another table is
    in its place."""
    opened: list[str] = []

    class Opened(DeltaTable):
        def __init__(self, uri: str, **options: Any) -> None:
            opened.append(uri)
            super().__init__(uri, **options)

    monkeypatch.setattr(delta, "DeltaTable", Opened)
    monkeypatch.setattr(delta, "_MAX_USES", 3)
    lake.create()
    later = timedelta(0)
    locations = TargetLocations((lake.folder,), ())
    with closing(open_target("r", lake.rule(), lake.connection, lambda: now() + later, (), locations)) as target:
        for _ in range(6):
            assert target.deliver_span(span_of({"id": "a"}), now() + timedelta(seconds=60)).response.accepted
        assert len(opened) == 2
        shutil.rmtree(lake.path)
        lake.create(pa.schema([("n", pa.int64())]))
        for _ in range(8):
            lake.send(span_of({"n": 1}))
        later = timedelta(minutes=2)
        found = target.deliver_span(span_of({"n": 2}), now() + timedelta(minutes=3))

    assert (found.response.error, found.rejected) == (None, {})
    assert sorted(row["n"] for row in lake.rows()) == [1] * 8 + [2]


def test_a_table_that_cannot_be_written_is_tried_again(lake: Lake) -> None:
    """The check says why: a column for the delivery's id that is no text, and a feature of later versions."""
    lake.create(pa.schema([("delivery_id", pa.int64())]))
    wrong = lake.send(span_of({}))
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["later"], "writerFeatures": ["later"]}
    (lake.path / "_delta_log" / f"{1:020}.json").write_text(json.dumps({"protocol": protocol}))
    later = lake.send(span_of({}))
    with closing(lake.opened()) as target:
        checked = target.check()

    assert wrong.response.error_class == "TableUnusable"
    assert str(wrong.response.error).startswith(
        "the column 'delivery_id' of the table 'lake/orders' has the type int64"
    )
    assert not later.response.accepted
    assert checked == later.response.error
    assert "Feature 'later' is not supported" in str(checked)


def test_of_two_pushes_that_write_a_span_at_once_one_commits(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other finds the conflict, looks again, and adds nothing."""
    lake.create()
    span = span_of({"id": "a"}, {"id": "b"})
    real, raced = delta.write_deltalake, count()

    def late(*args: Any, **options: Any) -> None:
        if next(raced) == 0:
            assert lake.send(span).response.accepted
        real(*args, **options)

    monkeypatch.setattr(delta, "write_deltalake", late)
    assert lake.send(span).response.accepted
    assert next(raced) == 2  # the late one, the one before it, and no third
    assert (lake.version, len(lake.rows())) == (1, 2)


def test_spans_of_other_rules_at_the_same_time_conflict_with_none(lake: Lake) -> None:
    """Not even where both add a column: the loser looks at the table again."""
    lake.create()
    spans = [span_of(*({"id": f"{n}-{row}", f"added_{n % 3}": row} for row in range(20))) for n in range(12)]
    with ThreadPoolExecutor(4) as pool:
        responses = list(pool.map(lambda span: lake.send(span, "new_columns: add"), spans))
        # a span that lost five times is tried again by its retry policy
        again = [lake.send(span, "new_columns: add") for span in spans]

    assert {each.response.error_class for each in responses} <= {None, "CommitConflict"}
    assert all(each.response.accepted for each in again)
    rows = lake.rows()
    assert (len(rows), len({row["id"] for row in rows})) == (240, 240)
    assert set(rows[0]) == {"delivery_id", "id", "amount", "added_0", "added_1", "added_2"}


def test_a_lost_response_of_s3_adds_no_row(tmp_path: Path, s3_server: S3Server) -> None:
    """The server carries the commit out, and the connection breaks: the repetition finds the transaction."""
    lake = S3Lake(tmp_path, s3_server)
    span = span_of({"id": "a"}, {"id": "b"})
    lost = iter([True])
    s3_server.lose_response = lambda request: request.is_put and "00000001.json" in request.path and next(lost, False)
    first = lake.send(span)
    s3_server.lose_response = lambda request: False
    again = lake.send(span)

    assert next(lost, None) is None, "no response was lost"
    assert again.response.accepted
    assert len(lake.rows()) == 2, first


@pytest.mark.parametrize("code", ["AccessDenied", "SlowDown"])
def test_an_error_of_s3_is_reported_without_secrets_and_tried_again(
    tmp_path: Path, s3_server: S3Server, code: str
) -> None:
    """With its code, on one line."""
    lake = S3Lake(tmp_path, s3_server)
    s3_server.refuse = lambda request: code if request.is_put else None
    response = lake.send(span_of({"id": "a"})).response
    s3_server.refuse = lambda request: None

    assert (response.accepted, response.code, response.error_class) == (False, None, "TableUnavailable")
    assert f"the table 's3://tests/{lake.prefix}/orders': {code}: " in str(response.error)
    assert not re.search("Signature=[0-9a-f]|AKIA|\n|\x1b", str(response.error))
    assert lake.send(span_of({"id": "a"})).response.accepted


def test_a_bucket_that_does_not_exist_is_reported(lake: Lake, s3_server: S3Server) -> None:
    """Nothing makes buckets."""
    found = connections_from_environment({"EVENTBRIDGE_CONN_C": s3_server.connection})("c")
    lake.connection = lambda _: found  # type: ignore[method-assign]
    fields = "table: s3://nowhere/orders, connection: c, columns: {id: string}"
    with closing(lake.opened(fields)) as target:
        checked = target.check()
    for text in (checked, lake.send(span_of({"id": "a"}), fields).response.error):
        assert text == "the table 's3://nowhere/orders': NoSuchBucket: the bucket does not exist"


def test_a_server_that_is_away_is_tried_again(tmp_path: Path, s3_server: S3Server) -> None:
    """The error says what failed, and the check says the same."""
    lake = S3Lake(tmp_path, s3_server, {"endpoint_url": "http://127.0.0.1:9"})
    response = lake.send(span_of({"id": "a"})).response
    with closing(lake.opened()) as target:
        found = target.check()

    assert response.error_class == "TableUnavailable"
    assert "Connection refused" in str(response.error)
    assert "Connection refused" in found


def test_a_missing_table_is_created_only_if_the_rule_says_so(lake: Lake) -> None:
    """With the types of `columns`, or with `new_columns: add`; its log forgets old spans."""
    span = span_of({"id": "a", "n": 1})
    with closing(lake.opened()) as target:
        missing = target.check()
    refused = lake.send(span)
    columns = (
        'columns: {id: string, n: "decimal(9,1)", at: timestamp, d: date, b: boolean, x: binary, f: double, l: long}'
    )
    with closing(lake.opened(columns)) as target:
        assert target.check() is None
    created = lake.send(span, columns)

    assert "there is no Delta table 'lake/orders'. Create it, or let the rule create it" in missing
    assert (refused.response.error_class, refused.response.error) == ("TableUnusable", missing)
    assert created.response.accepted
    table = DeltaTable(str(lake.path))
    assert [(each.name, str(each.type.type)) for each in table.schema().fields] == [
        ("delivery_id", "string"), ("id", "string"), ("n", "decimal(9,1)"), ("at", "timestamp"), ("d", "date"),
        ("b", "boolean"), ("x", "binary"), ("f", "double"), ("l", "long"),
    ]  # fmt: skip
    assert table.metadata().configuration == {"delta.setTransactionRetentionDuration": "interval 90 days"}
    assert [row["n"] for row in lake.rows()] == [Decimal("1.0")]


def test_columns_are_added_or_members_ignored_as_the_rule_says(lake: Lake) -> None:
    """In a table of another program, with partitions that stay as they are."""
    lake.create(pa.schema([("id", pa.string()), ("country", pa.string())]), partition_by=["country"])
    added = lake.send(span_of({"id": "a", "country": "DE", "n": 1}, {"id": "b", "n": 2.5}), "new_columns: add")
    ignored = lake.send(span_of({"id": "c", "city": "Ulm"}), "new_columns: ignore")

    assert (added.rejected, ignored.rejected) == ({}, {})
    assert sorted(map(str, lake.rows())) == sorted(
        map(str, [
            {"id": "a", "country": "DE", "n": 1.0}, {"id": "b", "country": None, "n": 2.5},
            {"id": "c", "country": None, "n": None},
        ])
    )  # fmt: skip
    assert DeltaTable(str(lake.path)).metadata().partition_columns == ["country"]


def test_deliveries_that_are_sent_one_by_one_are_in_the_table_once(lake: Lake) -> None:
    """Dead letters and events that are sent by hand: in any groups, each has a transaction of its own."""
    lake.create()
    requests = requests_of(*({"id": str(number), "amount": "x" if number == 7 else 1} for number in range(130)))
    for some in (requests[:120], requests[50:], requests):
        with closing(lake.opened()) as target:
            responses = dict(target.deliver(some, now() + timedelta(seconds=60)))
        assert [index for index, each in responses.items() if not each.accepted] == [7] * (some[0].index <= 7)

    assert sorted(int(row["id"]) for row in lake.rows()) == [number for number in range(130) if number != 7]


def test_dead_letters_of_another_target_become_rows(sending: Sending, site: Any) -> None:
    """A dead letter queue may be a table."""
    queue = "{type: delta, table: lake/dead, columns: {event_id: string, reason: string}, new_columns: ignore}"
    sending.begin(3, crm=f'{{type: http, url: "/status/400", allow_http: true, dead_letter_queue: {queue}}}')
    sending.deliver()

    rows = DeltaTable(str(site.folder / "lake" / "dead")).to_pyarrow_table().to_pylist()
    assert sorted((row["event_id"], row["reason"]) for row in rows) == [(str(n), "non_retryable") for n in (1, 2, 3)]
    assert audit(sending.runtime).differences == ()


def test_upkeep_compacts_once_in_its_time(lake: Lake) -> None:
    """Spans that were written before are still found; a second process does not compact beside the first."""
    lake.create()
    spans = [span_of({"id": str(number)}) for number in range(6)]
    for span in spans:
        lake.send(span)
    with closing(lake.opened()) as first, closing(lake.opened()) as second:
        done = [target.maintain(timedelta(days=1)) for target in (first, second, first)]
    again = [lake.send(span) for span in spans]

    assert done == [True, False, False]
    assert len(DeltaTable(str(lake.path)).file_uris()) == 1
    assert all(each.response.accepted for each in again)
    assert sorted(row["id"] for row in lake.rows()) == [str(number) for number in range(6)]


def test_eventbridge_maintain_compacts_the_tables_of_rules(sending: Sending, site: Any) -> None:
    """One that cannot be opened is logged, and the others are compacted."""
    fields = "new_columns: add, maintain: 1d"
    sending.begin(
        4,
        good=f"{{type: delta, table: lake/orders, {fields}}}",
        bad=f"{{type: delta, table: 's3://x-1/y', connection: nowhere, {fields}}}",
    )
    sending.deliver()
    done = maintain(sending.runtime)

    assert (done.tables, maintain(sending.runtime).tables) == (1, 0)
    table = DeltaTable(str(site.folder / "lake" / "orders"))
    assert (len(table.file_uris()), table.to_pyarrow_table().num_rows) == (1, 4)


@pytest.mark.parametrize("table", ["own/orders", "own", "around", "link/orders", "/etc/orders"])
def test_a_table_is_never_where_eventbridge_keeps_its_own_data(lake: Lake, table: str) -> None:
    """Nor around it, because upkeep removes files, nor behind a link, nor outside of the allowed folders."""
    (lake.folder / "own").mkdir()
    (lake.folder / "around").mkdir()
    (lake.folder / "elsewhere").mkdir()
    (lake.folder / "link").symlink_to(lake.folder / "elsewhere")
    with pytest.raises(UserError, match="Target 'rows' of rule 'r': "):
        lake.opened(f"columns: {{id: string}}, table: {table}")


@pytest.mark.parametrize("prefix", ["eventbridge", "eventbridge/archive", "around"])
def test_a_table_in_s3_is_never_where_the_store_is(lake: Lake, prefix: str) -> None:
    """The check of a rule file says so."""
    target = lake.rule(f"table: 's3://lake/x/{prefix}', connection: c")
    locations = TargetLocations((), ("s3://lake/x/eventbridge/", "s3://lake/x/around/y/"))
    found = obstacle_of(target, locations)
    assert found is not None
    assert (found.field, found.remedy) == ("table", "Name another place")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("table: 's3://lake', connection: c", "is not the address of a table"),
        ("table: 's3://Lake/x', connection: c", "is not the address of a table"),
        ("table: 's3://lake/x/../y', connection: c", "is not the address of a table"),
        ("table: 's3://lake/x?y', connection: c", "is not the address of a table"),
        ("table: s3://lake/x", "a table in S3 needs a connection"),
        ("table: gs://lake/x", "is neither in S3 nor in a folder"),
        ("table: 'file:///etc/x'", "is neither in S3 nor in a folder"),
        ("table: .", "is not a folder of its own"),
        ("table: lake/.hidden", "hidden"),
        ("table: a/../b", "contains '..'"),
        ("table: x, connection: c", "a table in a folder needs no connection"),
        ("table: x, columns: {a b: string}", "is not the name of a column"),
        ("table: x, columns: {a: text}", "'a' must have the type of a column, not 'text'"),
        ("table: x, columns: {a: 'decimal(39,2)'}", "must have the type of a column"),
        ("table: x, columns: {a: 'decimal(2,3)'}", "must have the type of a column"),
        ("table: x, columns: {a: string, A: long}", "is there twice"),
        ("table: x, columns: {}", "columns is empty"),
        ("table: x, columns: {a: string}, partition_by: [b]", "'b' is not among the columns"),
        ("table: x, columns: {a: double}, partition_by: [a]", "whose values are no names of folders"),
        ("table: x, delivery_id: a b", "is not the name of a column"),
        ("table: x, new_columns: maybe", "new_columns"),
        ("table: x, maintain: 1h", "maintain must be a duration from 1d to 30d"),
        ("table: x, ordering_key: $.id", "applies to single deliveries"),
        ("table: x, errors_tolerance: none", "the rows of a table have no order"),
        ("", "table"),
    ],
)
def test_a_wrong_field_is_refused_in_the_rule_file(tmp_path: Path, fields: str, message: str) -> None:
    """The error has the file and the line."""
    (tmp_path / "r.yaml").write_text(
        "buses: {b: {source: {type: embedded}}}\n"
        f"rules: {{r: {{bus: b, pattern: {{}}, targets: {{rows: {{type: delta, {fields}}}}}}}}}\n"
    )
    with pytest.raises(RuleFileError) as refused:
        load_rules(tmp_path)
    assert message in str(refused.value)
    assert "r.yaml:2" in str(refused.value)


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
