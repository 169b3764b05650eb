"""The target type `iceberg` on catalogs in SQLite and PostgreSQL and on a REST catalog: a span is one append, once."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pipeline.delivering import Sending, settled
from pipeline.dying import DIED, DONE, push_that_dies
from pipeline.iceberg_spans import now, opened, send_at_once, span_of
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, TimestamptzType
from services.iceberg import OwnCatalog, postgresql_catalog, rest_catalog, sqlite_catalog
from services.postgresql import Postgresql

from eventbridge import fault_points
from eventbridge.config.connection import Connection
from eventbridge.delivery.push import push
from eventbridge.errors import ConnectionUnusable, RuleFileError
from eventbridge.pipeline.commit.stage import commit
from eventbridge.repair.audit import audit
from eventbridge.rules.load import load_rules
from eventbridge.targets.iceberg.append import SPAN, numbers_of_text, numbers_to_text
from eventbridge.targets.protocol import DeliverySpan, SpanResponse

PAGE = (Path(__file__).parents[3] / "docs" / "howto" / "connect-iceberg.md").read_text()
(RULES,) = re.findall(r"^```yaml rules\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
(PYTHON,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

ORDERS = Schema(
    NestedField(1, "delivery_id", StringType(), required=False),
    NestedField(2, "id", StringType(), required=False),
    NestedField(3, "amount", DoubleType(), required=False),
    NestedField(4, "count", LongType(), required=False),
)
KINDS = ("sqlite", "postgresql", "rest")


@pytest.fixture(scope="module")
def rest_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnCatalog]:
    with rest_catalog(tmp_path_factory.mktemp("rest")) as found:
        yield found


@pytest.fixture(params=KINDS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OwnCatalog]:
    """A catalog of each kind, with an empty table `sales.orders`."""
    folder = tmp_path / "lake"
    folder.mkdir()
    if request.param == "sqlite":
        found = sqlite_catalog(folder)
    elif request.param == "postgresql":
        server: Postgresql = request.getfixturevalue("postgresql_server")
        found = postgresql_catalog(server.new_database(), folder)
    else:
        found = request.getfixturevalue("rest_server")
        if found.catalog.namespace_exists("sales"):
            for each in found.catalog.list_tables("sales"):
                found.catalog.drop_table(each)
    found.table("sales.orders", ORDERS)
    yield found
    if request.param != "rest":
        found.catalog.close()


on_two = pytest.mark.parametrize("lake", ["sqlite", "rest"], indirect=True)
on_sqlite = pytest.mark.parametrize("lake", ["sqlite"], indirect=True)


def delivered(lake: OwnCatalog, folder: Path, span: DeliverySpan, fields: str = "") -> SpanResponse:
    with closing(opened(lake.connection, folder, fields)) as target:
        found = target.deliver_span(span, now() + timedelta(seconds=30))
    assert found is not None
    return found


def spans_in(lake: OwnCatalog) -> list[str]:
    table = lake.catalog.load_table("sales.orders")
    return [each.summary[SPAN] for each in table.snapshots() if each.summary is not None]


def test_a_span_is_one_append_however_often_it_is_sent(lake: OwnCatalog, tmp_path: Path) -> None:
    """Members become columns; the name of the span is in the summary of its snapshot."""
    span = span_of(
        {"id": "A-1", "amount": 1.5}, {"id": "\u00fc \u4e2d", "count": 2**62}, {}, {"id": None}, name="first"
    )
    other = span_of({"id": "B-1"}, name="second")
    for each in (span, span, other, span, other):
        assert delivered(lake, tmp_path, each).response.accepted

    rows = {row["delivery_id"]: (row["id"], row["amount"], row["count"]) for row in lake.rows("sales.orders")}
    assert len(lake.rows("sales.orders")) == 5
    assert [rows[each] for each, _ in span.rows()] == [
        ("A-1", 1.5, None), ("\u00fc \u4e2d", None, 2**62), (None, None, None), (None, None, None),
    ]  # fmt: skip
    assert spans_in(lake) == ["first", "second"]


@on_two
def test_a_payload_that_does_not_fit_is_rejected_alone(lake: OwnCatalog, tmp_path: Path) -> None:
    """A repetition rejects the same deliveries, also if they would fit by then, and adds none."""
    span = span_of(*({"id": f"A-{n}", "count": "many" if n == 33 else n} for n in range(50)), b"[1]", {"city": "Ulm"})
    first = delivered(lake, tmp_path, span)
    with lake.catalog.load_table("sales.orders").update_schema() as update:
        update.add_column("city", StringType())
    again = delivered(lake, tmp_path, span)

    bad = [span.delivery_ids[number].as_py() for number in (33, 50, 51)]
    assert first.response.accepted
    assert again.response.accepted
    assert set(first.rejected) == set(again.rejected) == set(bad)
    assert {each.error_class for each in first.rejected.values()} == {"MessageRefused"}
    assert "has no column 'city'" in str(first.rejected[bad[2]].error)
    assert "did not fit the columns that the table had" in str(again.rejected[bad[2]].error)
    assert len(lake.rows("sales.orders")) == 49


def test_members_without_a_column_are_refused_ignored_or_added(lake: OwnCatalog, tmp_path: Path) -> None:
    """As the rule says; new columns are optional, and rows without them have a null."""
    row = {"id": "1", "city": "Ulm", "price": 1.5, "ok": True, "lines": [{"n": 1}]}
    refused = delivered(lake, tmp_path, span_of(row))
    ignored = delivered(lake, tmp_path, span_of(row), "new_columns: ignore")
    added = delivered(lake, tmp_path, span_of(row, {"id": "2"}), "new_columns: add")

    assert len(refused.rejected) == 1
    assert (ignored.rejected, added.rejected) == ({}, {})
    (found,) = [each for each in lake.rows("sales.orders") if each["city"] is not None]
    assert (found["id"], found["price"], found["ok"], json.loads(found["lines"])) == ("1", 1.5, True, [{"n": 1}])
    assert len(lake.rows("sales.orders")) == 3


@pytest.mark.parametrize("lake", ["postgresql", "rest"], indirect=True)
def test_of_two_processes_that_send_a_span_at_once_one_appends(lake: OwnCatalog, tmp_path: Path) -> None:
    """Both report it as stored; the files of the other are removed."""
    shared = [span_of({"id": f"{n}"}, name=f"shared-{n}") for n in range(4)]
    folders = [tmp_path / "one", tmp_path / "two"]
    own = [[span_of({"id": each.name}, name=f"{each.name}-{n}") for n in range(4)] for each in folders]
    work = []
    for folder, spans in zip(folders, own, strict=True):
        folder.mkdir()
        work.append((folder, [each for pair in zip(shared, spans, strict=True) for each in pair]))
    files = lake.files()
    found = send_at_once(lake.connection, work)

    assert found == [[(True, None)] * 8] * 2
    assert sorted(spans_in(lake)) == sorted(each.name for each in [*shared, *own[0], *own[1]])
    assert len(lake.rows("sales.orders")) == 12
    assert len(lake.files() - files) == 12


@on_two
def test_a_push_may_die_anywhere_and_no_row_is_lost_or_twice(
    sending: Sending, site: Any, lake: OwnCatalog, tmp_path: Path, order: Callable[..., bytes]
) -> None:
    """Killed around any commit, response or record: each event is in exactly one row afterwards."""
    site.environ["EVENTBRIDGE_CONN_LAKE"] = lake.variable
    site.environ["EVENTBRIDGE_BATCH_TIMEOUT"] = "3600"
    transform = 'transform: {form: TEMPLATE, value: {id: $.id}, template: \'{"id": "${id}"}\'}'
    batch = sending.routed(5, crm=f"{{type: iceberg, connection: lake, table: sales.orders, {transform}}}")

    for number in count(1):
        lake.catalog.drop_table("sales.orders")
        lake.table("sales.orders", ORDERS)
        wreck = site.copy(tmp_path / f"wreck-{number}")
        code = push_that_dies(wreck.folder, wreck.environ, batch.batch_id, number)
        runtime = wreck.reopen()
        push(runtime, batch.batch_id, 0)
        Sending(wreck, sending.receiver, sending.order).settle(batch)

        assert {row.status for row in settled(runtime, batch.batch_id)["crm"]} == {"delivered"}
        assert sorted(row["id"] for row in lake.rows("sales.orders")) == [str(n) for n in range(1, 6)]
        assert len(set(spans_in(lake))) == len(spans_in(lake))
        assert commit(runtime, batch.batch_id)
        assert audit(runtime).differences == ()
        wreck.close()
        if code == DONE:
            break
        assert code == DIED
    assert number > 3


@on_two
def test_a_missing_table_is_created_with_the_columns_of_the_rule(lake: OwnCatalog, tmp_path: Path) -> None:
    """Also its partitions; without columns, or without the namespace, the error says what helps."""
    lake.catalog.drop_table("sales.orders")
    with closing(opened(lake.connection, tmp_path)) as target:
        problem = target.check()  # type: ignore[attr-defined]
    refused = delivered(lake, tmp_path, span_of({"id": "1"}))
    fields = 'columns: {country: string, amount: "decimal(10,2)", at: timestamp}, partition_by: [country]'
    with closing(opened(lake.connection, tmp_path, fields)) as target:
        unproblematic = target.check()  # type: ignore[attr-defined]
    assert not lake.catalog.table_exists("sales.orders")
    payloads = [{"country": each, "amount": "1.50", "at": "2026-11-30T10:00:00+01:00"} for each in ("DE", "FR", "DE")]
    created = delivered(lake, tmp_path, span_of(*payloads), fields)

    assert "there is no table 'sales.orders' in the catalog of connection 'lake'. Create it" in problem
    assert (refused.response.error_class, refused.response.error) == ("TableUnusable", problem)
    assert unproblematic is None
    assert (created.response.error, created.rejected) == (None, {})
    table = lake.catalog.load_table("sales.orders")
    assert [each.name for each in table.spec().fields] == ["country"]
    assert table.properties["write.metadata.delete-after-commit.enabled"] == "true"
    assert len(table.inspect.files()) == 2
    assert {(str(row["amount"]), row["at"].isoformat()) for row in lake.rows("sales.orders")} == {
        ("1.50", "2026-11-30T09:00:00+00:00")
    }


@pytest.mark.parametrize("lake", ["rest"], indirect=True)
def test_the_example_of_the_page_writes_its_table(
    sending: Sending,
    site: Any,
    lake: OwnCatalog,
    order: Callable[..., bytes],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each large order is a row, which pyiceberg reads."""
    monkeypatch.setenv("CATALOG_URL", lake.connection.host)
    site.environ["EVENTBRIDGE_CONN_LAKE"] = lake.variable
    lake.catalog.drop_table("sales.orders")
    site.write_rules(RULES)
    for number, amount in enumerate((2000, 3000.5, 10)):
        site.publish(
            order(str(number), time="2026-11-30T09:00:00Z", data={"id": f"A-{number}", "amount": amount}),
            topic="events",
        )
    sending.deliver()
    exec(PYTHON, {})

    printed = capsys.readouterr().out
    assert [f"A-{number}" in printed for number in range(3)] == [True, True, False]
    rows = {row["order_id"]: (str(row["amount"]), row["placed_at"].isoformat()) for row in lake.rows("sales.orders")}
    assert rows == {
        "A-0": ("2000.00", "2026-11-30T09:00:00+00:00"),
        "A-1": ("3000.50", "2026-11-30T09:00:00+00:00"),
    }


@contextmanager
def once_before_commit(act: Callable[[], object]) -> Iterator[None]:
    """Call a function when the next append is about to be committed."""
    acts = [act]

    def hook(point: str) -> None:
        if point == "target.send" and acts:
            acts.pop()()

    fault_points.install(hook)
    yield
    fault_points.install(lambda _: None)
    assert acts == []


@on_two
def test_what_others_commit_in_between_is_searched_before_it_is_tried_again(lake: OwnCatalog, tmp_path: Path) -> None:
    """The span itself is not appended again; after any other append it is, from the files that are written already."""
    files = lake.files()
    span, other = span_of({"id": "1"}), span_of({"id": "2"})
    with once_before_commit(lambda: delivered(lake, tmp_path, span)):
        same = delivered(lake, tmp_path, span)
    with once_before_commit(lambda: delivered(lake, tmp_path, span_of({"id": "3"}))):
        different = delivered(lake, tmp_path, other)

    assert (same.response.error, different.response.error) == (None, None)
    assert sorted(row["id"] for row in lake.rows("sales.orders")) == ["1", "2", "3"]
    assert len(lake.files() - files) == 3


@on_sqlite
def test_a_commit_whose_response_is_lost_is_seen(
    lake: OwnCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts as stored; a commit that did not happen is tried again."""
    commit_table = SqlCatalog.commit_table

    def fail(*_: Any) -> None:
        raise CommitStateUnknownException("the server failed")

    def lose_response(*args: Any) -> None:
        commit_table(*args)
        fail()

    span = span_of({"id": "1"})
    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", lose_response)
        seen = delivered(lake, tmp_path, span)
        patch.setattr(SqlCatalog, "commit_table", fail)
        unseen = delivered(lake, tmp_path, span_of({"id": "2"}))

    assert seen.response.accepted
    assert (unseen.response.accepted, unseen.response.error_class) == (False, "CommitUnknown")
    assert [row["id"] for row in lake.rows("sales.orders")] == ["1"]


@on_two
def test_a_span_is_found_though_its_snapshot_was_expired(lake: OwnCatalog, tmp_path: Path) -> None:
    """By the ids of its deliveries; without the column, what is older than an hour becomes dead letters."""
    then = now() - timedelta(hours=3)
    span, new = span_of({"id": "1"}, {"id": "2"}, at=then), span_of({"id": "3"}, at=then)
    delivered(lake, tmp_path, span)
    delivered(lake, tmp_path, span_of({"id": "4"}))
    lake.catalog.load_table("sales.orders").maintenance.expire_snapshots().older_than(now()).commit()
    again = delivered(lake, tmp_path, span)
    first = delivered(lake, tmp_path, new)
    assert (again.response.error, first.response.error) == (None, None)
    assert sorted(row["id"] for row in lake.rows("sales.orders")) == ["1", "2", "3", "4"]

    lake.catalog.load_table("sales.orders").maintenance.expire_snapshots().older_than(now()).commit()
    fields = "delivery_id: no_column"
    old = delivered(lake, tmp_path, span_of({"id": "5"}, at=then), fields)
    recent = delivered(lake, tmp_path, span_of({"id": "6"}), fields)
    assert (old.response.error_class, recent.response.error) == ("MessageRefused", None)
    assert "no longer has the snapshots of the time since the deliveries were planned" in str(old.response.error)
    assert sorted(row["id"] for row in lake.rows("sales.orders")) == ["1", "2", "3", "4", "6"]


@on_sqlite
def test_a_span_that_a_rollback_took_back_is_appended_again(lake: OwnCatalog, tmp_path: Path) -> None:
    """Its snapshot still exists, but is no ancestor of the newest one."""
    first, second = span_of({"id": "1"}), span_of({"id": "2"})
    delivered(lake, tmp_path, first)
    table = lake.catalog.load_table("sales.orders")
    before = table.snapshots()[0].snapshot_id
    delivered(lake, tmp_path, second)
    table.refresh().manage_snapshots().rollback_to_snapshot(before).commit()
    delivered(lake, tmp_path, second)

    assert sorted(row["id"] for row in lake.rows("sales.orders")) == ["1", "2"]


def test_which_deliveries_have_no_row_takes_little_room() -> None:
    """The bits of 100,000 deliveries, whichever of them are rejected."""
    every_other = set(range(0, 100_000, 2))
    at_random = {number for number in range(100_000) if random.Random(number).random() < 0.5}
    for numbers in ({99_999}, every_other, at_random):
        text = numbers_to_text(numbers, 100_000)
        assert numbers_of_text(text) == numbers
        assert len(text) < 17_000


@pytest.mark.parametrize("kind", ["iceberg", "postgres"])
def test_a_catalog_that_is_away_is_tried_again(kind: str, tmp_path: Path) -> None:
    """The deliveries are retried, and the message has no secret."""
    extra = {"s3.secret-access-key": "of-the-lake-4711"}
    host = "http://127.0.0.1" if kind == "iceberg" else "127.0.0.1"
    connection = Connection("lake", kind, host, 9, "ann", "of-ann-4711", "shop", extra)
    with closing(opened(connection, tmp_path)) as target:
        found = target.deliver_span(span_of({"id": "1"}), now() + timedelta(seconds=30))
        problem = target.check()  # type: ignore[attr-defined]

    assert found is not None
    assert (found.response.accepted, found.response.error_class) == (False, "CatalogUnavailable")
    assert "the catalog of connection 'lake'" in problem
    assert "4711" not in f"{found}{problem}{connection}"


@pytest.mark.parametrize(
    ("kind", "host", "extra", "message"),
    [
        ("http", "https://catalog.example", {}, "is of type 'http'"),
        ("iceberg", "", {}, "must have the URL of the REST catalog as its host"),
        ("iceberg", "https://ann:of-ann-4711@catalog.example", {}, "must have the URL of the REST catalog as its host"),
        ("iceberg", "ftp://catalog.example", {}, "must have the URL of the REST catalog as its host"),
        ("iceberg", "https://catalog.example", {"py-io-impl": "os.system"}, "has the unknown extra 'py-io-impl'"),
        ("sqlite", "catalog.sqlite", {}, "must have the absolute path"),
        ("sqlite", "{folder}/missing.sqlite", {}, "there is no file"),
        ("sqlite", "{folder}/own/ledger.sqlite", {}, "names a file of EventBridge itself"),
        ("sqlite", "{folder}/lake.sqlite", {"warehouse": "file://{folder}/own/lake"}, "keeps its own data"),
        ("sqlite", "{folder}/lake.sqlite", {"warehouse": "{folder}/own/lake"}, "keeps its own data"),
        ("sqlite", "{folder}/lake.sqlite", {"warehouse": "s3a://own-bucket/store/x"}, "keeps its own data"),
        ("postgres", "", {}, "names no host"),
    ],
)
def test_a_connection_that_cannot_be_used_is_refused(
    tmp_path: Path, kind: str, host: str, extra: dict[str, str], message: str
) -> None:
    """The error says what to do; nothing is opened."""
    (tmp_path / "own").mkdir()
    for name in ("own/ledger.sqlite", "lake.sqlite"):
        (tmp_path / name).touch()
    extra = {name: each.format(folder=tmp_path) for name, each in extra.items()}
    with pytest.raises(ConnectionUnusable) as refused:
        opened(Connection("lake", kind, host.format(folder=tmp_path), extra=extra), tmp_path)
    assert message in str(refused.value)
    assert "4711" not in str(refused.value)


@on_sqlite
def test_a_table_where_eventbridge_keeps_its_data_gets_no_row(lake: OwnCatalog, tmp_path: Path) -> None:
    """Also if only its properties lead there."""
    own = f"file://{tmp_path}/own/lake"
    lake.table("sales.inside", ORDERS, location=own)
    lake.table("sales.led", ORDERS, properties={"write.data.path": own})
    for name in ("sales.inside", "sales.led"):
        with closing(opened(lake.connection, tmp_path, table=name)) as target:
            found = target.deliver_span(span_of({"id": "1"}), now() + timedelta(seconds=30))
        assert found is not None
        assert found.response.error_class == "TableUnusable"
        assert "keeps its own data or rule files" in str(found.response.error)
        assert lake.rows(name) == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("table: orders", "is not the name of an Iceberg table"),
        ("table: 'sales.orders; drop'", "is not the name of an Iceberg table"),
        ("table: sales.orders, ordering_key: $.id", "ordering_key applies to single deliveries"),
        ("table: sales.orders, columns: {a: text}", "must have the type of a column"),
        ("", "table"),
    ],
)
def test_fields_that_cannot_be_are_refused_in_the_rule_file(tmp_path: Path, fields: str, message: str) -> None:
    """The error has the file and the line."""
    (tmp_path / "r.yaml").write_text(
        "buses: {b: {source: {type: embedded}}}\n"
        f"rules: {{r: {{bus: b, pattern: {{}}, targets: {{rows: {{type: iceberg, connection: c, {fields}}}}}}}}}\n"
    )
    with pytest.raises(RuleFileError) as refused:
        load_rules(tmp_path)
    assert message in str(refused.value)
    assert "r.yaml:2" in str(refused.value)


@on_sqlite
def test_a_table_that_names_code_to_load_gets_no_row(lake: OwnCatalog, tmp_path: Path) -> None:
    """A property of a table cannot make EventBridge import what it likes."""
    with lake.catalog.load_table("sales.orders").transaction() as change:
        change.set_properties({"write.py-location-provider.impl": "pyiceberg.table.locations.SimpleLocationProvider"})
    found = delivered(lake, tmp_path, span_of({"id": "1"}))

    assert (found.response.accepted, found.response.error_class) == (False, "TableUnusable")
    assert "which names code to load. Remove it" in str(found.response.error)
    assert lake.rows("sales.orders") == []


@on_sqlite
def test_the_check_finds_a_table_that_takes_no_row(lake: OwnCatalog, tmp_path: Path) -> None:
    """A column that cannot hold the delivery's id, and partitions for which a package is missing."""
    lake.table("sales.numbered", Schema(NestedField(1, "delivery_id", LongType(), required=False)))
    by_day = PartitionSpec(PartitionField(1, 1000, DayTransform(), "day"))
    lake.table("sales.daily", Schema(NestedField(1, "at", TimestamptzType(), required=False)), partition_spec=by_day)
    problems = {"sales.numbered": "has the type int64, but gets the delivery's id", "sales.daily": "pyiceberg-core"}
    for name, problem in problems.items():
        with closing(opened(lake.connection, tmp_path, table=name)) as target:
            checked = target.check()  # type: ignore[attr-defined]
            found = target.deliver_span(span_of({"at": "2026-11-30T10:00:00Z"}), now() + timedelta(seconds=30))
        assert found is not None
        assert problem in checked
        assert (found.response.error_class, found.response.error) == ("TableUnusable", checked)


@on_sqlite
def test_a_value_that_is_too_long_for_a_folder_rejects_its_row_alone(lake: OwnCatalog, tmp_path: Path) -> None:
    """As that of a partition, whose name may differ from that of the column."""
    lake.catalog.drop_table("sales.orders")
    by_id = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "by_id"))
    lake.table("sales.orders", ORDERS, partition_spec=by_id)
    texts = ["a/b", "..", "", "\u2028", "x" * 249]
    span = span_of({"id": "x" * 250}, *({"id": text} for text in texts), {"id": "\u00e4" * 50}, {})
    found = delivered(lake, tmp_path, span)

    ids = span.delivery_ids.to_pylist()
    assert (found.response.error, set(found.rejected)) == (None, {ids[0], ids[-2]})
    assert "the value for 'id' is too long for the name of a folder" in str(found.rejected[ids[0]].error)
    assert {row["id"] for row in lake.rows("sales.orders")} == {*texts, None}


@on_sqlite
def test_upkeep_expires_old_snapshots_and_keeps_rows(lake: OwnCatalog, tmp_path: Path) -> None:
    """What the table wants to keep stays, and upkeep that was just done is not done again."""
    for number in range(3):
        delivered(lake, tmp_path, span_of({"id": f"{number}"}))
    maintained = []
    for age, days in ((3_600_000, 0), (1, 2), (1, 2)):
        later = partial(lambda by: now() + by, timedelta(days=days))
        with lake.catalog.load_table("sales.orders").transaction() as change:
            change.set_properties({"history.expire.max-snapshot-age-ms": str(age)})
        with closing(opened(lake.connection, tmp_path, "maintain: 1d", clock=later)) as target:
            maintained.append(target.maintain(timedelta(days=1)))  # type: ignore[attr-defined]

    assert maintained == [False, True, False]
    assert len(lake.catalog.load_table("sales.orders").snapshots()) == 1
    assert sorted(row["id"] for row in lake.rows("sales.orders")) == ["0", "1", "2"]
