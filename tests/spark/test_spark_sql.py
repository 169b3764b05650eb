"""`where` and the SQL form on a real Spark: their columns, and failures of events and rules."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from spark.own_server import own_server
from spark.sql_site import STOP, SUBJECT, SqlSite, waiting
from stored import dead_letters

from eventbridge.config.connection import connections_from_environment
from eventbridge.control.consecutive_batches import deliver_redrive
from eventbridge.dead_letters.redrive_plan import NO_REQUEST, begin_redrive, survey
from eventbridge.dead_letters.redrives import Marks
from eventbridge.dead_letters.selection import Selection
from eventbridge.event.json_document import Number, parse_document, parse_value
from eventbridge.pipeline.deliver import deliver_deferred_matches
from eventbridge.pipeline.retry.deferred import due_deferred_matches
from eventbridge.repair.audit import audit
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime
from eventbridge.spark.server import SparkConnectServer

ROOT = Path(__file__).parents[2]

#: A minute of patterns for an event with a `long` text, which Java does not let anybody interrupt: each has a limit,
#: and takes the second that it allows.
LONG = "a" * 843
ENDLESS = " OR ".join(f"data:long::string RLIKE '.*a.*b{number}'" for number in range(100))


@pytest.fixture
def sql_site(spark_server: SparkConnectServer, tmp_path: Path) -> SqlSite:
    """An installation on the session's server."""
    return SqlSite(tmp_path, spark_server.url)


def failures(runtime: Runtime) -> list[tuple[str, str, str, str]]:
    """Return event, rule/target, reason and the beginning of the detail of the dead letters."""
    return sorted(
        (row["event_id"], f"{row['rule']}/{row['target']}", row["reason"], row["detail"].split("]")[0])
        for row in dead_letters(runtime)
    )


def test_rules_in_sql_have_a_total_together(spark_server: SparkConnectServer, tmp_path: Path) -> None:
    """Once the total is spent, further rules are deferred whole, and routed by themselves in the slow lane."""
    sql_site = SqlSite(tmp_path, spark_server.url, total_seconds=0.001)
    sql_site.write_rules(plain={}, one={"where": "true"}, two={"where": "true"})
    runtime = sql_site.deliver({}, {})

    assert sql_site.ids("plain-all") == "01"
    assert sorted([sql_site.ids("one-all"), sql_site.ids("two-all")]) == ["", "01"]
    assert [(reason, count) for _, reason, _, count in waiting(runtime)] == [("crowded", 2)]
    deliver_deferred_matches(runtime, "orders", sql_site.router, STOP)
    assert sql_site.ids("one-all") == sql_site.ids("two-all") == "01"
    assert audit(runtime).differences == ()


def test_sql_takes_what_no_variant_and_no_string_of_spark_holds(sql_site: SqlSite) -> None:
    """Halves of surrogate pairs and numbers of any size are preserved exactly; no number becomes text."""
    sql_site.write_rules(
        where={"where": "data:a::int > 0 AND length(data:text::string) > 0"},
        big={"where": "data:n::double > 1"},
        sql={"targets": {"t": {"form": "SQL", "value": "named_struct('n', data:n, 'text', data:text, 'all', data)"}}},
        text={"targets": {"t": {"form": "SQL", "value": "data:text::string"}}},
    )
    numbers = [
        "1e400",
        "1e-400",
        "123456789012345678901234567890123456789012",
        "1.1e0",
        "2.50",
        "12345678901234567890e-5",
    ]
    bodies = [f'{{"a": 1, "n": {number}, "text": "cut \\ud83d"}}' for number in numbers]
    runtime = sql_site.deliver(*({"data": parse_value(body)} for body in bodies))

    assert sql_site.ids("where-all") == "012345"
    assert sql_site.ids("big-all") == "02345"
    found = [parse_document(line) for line in (sql_site.folder / "sql-t.jsonl").read_bytes().splitlines()]
    assert [each["n"] for each in found] == [Number(number) for number in numbers]
    assert [each["all"] for each in found] == [parse_value(body) for body in bodies]
    assert {each["text"] for each in found} == {"cut \ud83d"}
    assert {(target, reason) for _, target, reason, _ in failures(runtime)} == {("text/t", "transform_failed")}
    assert audit(runtime).differences == ()


def test_where_sees_attributes_and_data(sql_site: SqlSite) -> None:
    """Columns are the attributes as text, extensions as a map, data as VARIANT; null is false."""
    sql_site.write_rules(
        plain={},
        data={"where": "data:n::int > 2 AND variant_get(data, '$.n', 'int') < 5"},
        attributes={"where": "subject IN ('s1', 's4') AND source = '/shop' AND time IS NULL"},
        extensions={"where": "extensions.fleet = '3' OR extensions['no'] = 'x'  -- a comment"},
        null={"where": "data:missing::int > 0"},
        fewer={"where": "data:n::int % 2 = 0", "targets": {"a": {"form": "JSONATA", "value": "id"}, "b": {}}},
    )
    runtime = sql_site.deliver(*SUBJECT, {"type": "other"}, {"data": None}, {})

    assert sql_site.ids("plain-all") == "01234578"
    assert sql_site.ids("data-all") == "34"
    assert sql_site.ids("attributes-all") == "14"
    assert sql_site.ids("extensions-all") == "3"
    assert sql_site.ids("null-all") == ""
    assert sql_site.received("fewer-a") == ["0", "2", "4"]
    assert sql_site.ids("fewer-b") == "024"
    assert waiting(runtime) == []
    assert [path for path in runtime.store.list("deliveries/") if "/sql/" in path] == []
    assert audit(runtime).differences == ()


def test_an_event_that_where_fails_for_is_a_dead_letter_of_its_rule(sql_site: SqlSite) -> None:
    """A failed cast is a route_failed of that event, once per target; other events of the rule are delivered."""
    sql_site.write_rules(
        plain={}, cast={"where": "data:n::int > 1", "targets": {"a": {}, "b": {"form": "JSONATA", "value": "id"}}}
    )
    bad = {"data": {"n": "many"}}
    runtime = sql_site.deliver(*SUBJECT[:3], bad, *SUBJECT[3:])

    assert sql_site.ids("plain-all") == "0123456"
    assert sql_site.ids("cast-a") == "2456"
    assert sql_site.received("cast-b") == ["2", "4", "5", "6"]
    said = "where: [INVALID_VARIANT_CAST"
    assert failures(runtime) == [("3", "cast/a", "route_failed", said), ("3", "cast/b", "route_failed", said)]
    assert waiting(runtime) == []
    assert audit(runtime).differences == ()


def test_invalid_sql_holds_its_rule_alone(sql_site: SqlSite) -> None:
    """A number as a condition, or mismatched types: on hold with Spark's error until the file is corrected."""
    sql_site.write_rules(
        plain={},
        good={"where": "true"},
        column={"where": "abs(extensions) > 5"},
        number={"where": "data:n::int"},
        value={"targets": {"a": {"form": "SQL", "value": "transform(id, x -> x)"}}},
    )
    runtime = sql_site.deliver(*SUBJECT)

    assert sql_site.ids("plain-all") == sql_site.ids("good-all") == "012345"
    held = runtime.ledger.rules.list_on_hold()
    assert sorted(held) == ["column", "number", "value"]
    assert "[DATATYPE_MISMATCH" in held["column"].reason
    assert sorted(waiting(runtime)) == [(name, "route_failed", "on_hold", 6) for name in sorted(held)]
    assert audit(runtime).differences == ()
    sql_site.write_rules(plain={}, column={"where": "data:n::int > 3"})
    runtime = open_runtime(sql_site.settings, connections_from_environment({}))
    deliver_deferred_matches(runtime, "orders", sql_site.router, STOP)
    assert sql_site.ids("column-all") == "45"
    assert audit(runtime).differences == ()


def test_sql_gives_the_payload(sql_site: SqlSite) -> None:
    """Text is text, anything else JSON; null is null or fails; a failure is one target's, of one event."""
    targets = {
        "text": {"form": "SQL", "value": "upper(subject)"},
        "json": {"form": "SQL", "value": "named_struct('n', data:n, 'none', CAST(NULL AS INT), 'km', 2.50BD)"},
        "part": {"form": "SQL", "value": "data:n"},
        "null": {"form": "SQL", "value": "data:none::int"},
        "must": {"form": "SQL", "value": "data:none::int", "missing": "error"},
        "cast": {"form": "SQL", "value": "10 / data:text::int"},
        "whole": {"form": "ORIGINAL"},
    }
    sql_site.write_rules(plain={}, sql={"where": "data:n::int < 3", "targets": targets})
    runtime = sql_site.deliver(*SUBJECT)

    assert sql_site.received("sql-text") == ["S0", "S1", "S2"]
    assert sql_site.received("sql-json") == [{"n": n, "none": None, "km": 2.5} for n in range(3)]
    assert sql_site.received("sql-part") == [0, 1, 2]
    assert sql_site.received("sql-null") == [None, None, None]
    assert sql_site.received("sql-cast") == [10.0, 5.0]
    assert sql_site.ids("sql-whole") == "012"
    null = "the expression is null for this event"
    assert failures(runtime) == [
        ("0", "sql/cast", "transform_failed", "[DIVIDE_BY_ZERO"),
        *((number, "sql/must", "transform_failed", null) for number in "012"),
    ]
    assert audit(runtime).differences == ()


def test_the_examples_of_the_page_give_what_it_shows(sql_site: SqlSite) -> None:
    """Each SQL example on the page about transforms has the result that the page shows."""
    page = (ROOT / "docs" / "reference" / "transforms.md").read_text()
    event = json.loads(re.findall(r"^```json event\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[0])
    found = re.findall(r"^```yaml sql\n(.*?)^```\n\n```\w+ gives\n(.*?)\n```$", page, re.MULTILINE | re.DOTALL)
    targets = {f"t{number}": yaml.safe_load(text)["transform"] for number, (text, _) in enumerate(found)}
    sql_site.write_rules(page={"targets": targets})
    runtime = sql_site.deliver(event | {"type": "placed"})

    failed = {row["target"]: f"failed: {row['detail']}" for row in dead_letters(runtime)}
    for number, (_, shown) in enumerate(found):
        path = sql_site.folder / f"page-t{number}.jsonl"
        got = failed.get(f"t{number}") or path.read_text().rstrip("\n")
        assert got.startswith(shown) or json.loads(got) == shown
    assert len(found) == 4


def test_an_expression_that_takes_all_memory_fails_for_its_event(sql_site: SqlSite) -> None:
    """A text larger than Java's memory ends only its own job: a dead letter of its rule, and the batch continues."""
    long = "data:long::string"
    sql_site.write_rules(plain={}, greedy={"where": f"data:n::int <> 3 OR length(replace({long}, 'x', {long})) > 0"})
    events = [*SUBJECT]
    events[3] = {**events[3], "data": {"n": 3, "long": "x" * 45_000}}
    runtime = sql_site.deliver(*events)

    assert sql_site.ids("plain-all") == "012345"
    assert sql_site.ids("greedy-all") == "01245"
    assert [row[:3] for row in failures(runtime)] == [("3", "greedy/all", "route_failed")]
    assert audit(runtime).differences == ()


def test_an_expression_that_does_not_end_delays_no_other_rule(tmp_path: Path) -> None:
    """Its job is interrupted and its rule put on hold; a later rule in the same batch is delivered; all is reconciled.

    It uses its own Spark, which ends with the test, with a slot for each event that may block one for minutes.
    """
    with own_server(tmp_path / "spark", master="local[6]") as server:
        sql_site = SqlSite(tmp_path, server.url, budget_seconds=5)
        sql_site.write_rules(endless={"where": f"data:n::int <> 3 OR {ENDLESS}"}, other={"where": "true"}, plain={})
        events = [*SUBJECT]
        events[3] = {**events[3], "data": {"n": 3, "long": LONG}}
        runtime = sql_site.deliver(*events)
        routed_until(sql_site, runtime, lambda: "endless" in runtime.ledger.rules.list_on_hold())
        routed_until(sql_site, runtime, lambda: {each[0] for each in waiting(runtime)} == {"endless"})

        assert sql_site.ids("plain-all") == sql_site.ids("other-all") == "012345"
        done = sql_site.ids("endless-all")
        assert "012".startswith(done)
        assert waiting(runtime) == [("endless", "route_failed", "on_hold", 6 - len(done))]
        assert "its SQL did not end within" in runtime.ledger.rules.list_on_hold()["endless"].reason
        sql_site.write_rules(endless={"where": "data:n::int <> 3"}, other={"where": "true"}, plain={})
        routed_until(sql_site, runtime, lambda: not waiting(runtime))
        assert sql_site.ids("endless-all") == "01245"
        assert audit(runtime).differences == ()


def routed_until(sql_site: SqlSite, runtime: Runtime, done: Callable[[], bool]) -> None:
    """Route what is deferred, whenever it is due: a busy machine may spend a budget before it comes to anything."""
    for _ in range(20):
        if done():
            return
        due_at = due_deferred_matches(runtime)
        if due_at is not None:
            time.sleep(max(0.0, (due_at - runtime.clock()).total_seconds()))
        deliver_deferred_matches(runtime, "orders", sql_site.router, STOP)
    pytest.fail(f"after 20 batches there wait {waiting(runtime)}, held are {runtime.ledger.rules.list_on_hold()}")


def test_a_fixed_rule_routes_its_dead_letters_again(sql_site: SqlSite) -> None:
    """A redrive with retransform evaluates SQL as route does, with the current `where` and the current SQL."""
    sql_site.write_rules(cast={"where": "data:n::int > 1", "targets": {"a": {"form": "SQL", "value": "data:n"}}})
    runtime = sql_site.deliver(*SUBJECT[:2], {"data": {"n": "many"}}, {"data": {"n": "few"}})
    assert [each[2] for each in failures(runtime)] == ["route_failed"] * 2
    kept = "data:n::string = 'many'"
    sql_site.write_rules(
        cast={"where": kept, "targets": {"a": {"form": "SQL", "value": "named_struct('n', upper(data:n::string))"}}}
    )
    left = survey(runtime, Selection(), retransform=False, again=False).left

    request = begin_redrive(runtime, Selection(), "run", rate=None, retransform=True, again=False)
    deliver_redrive(runtime, request.redrive_id, sql_site.router)

    assert left == {("cast/a", NO_REQUEST): 2}
    assert sql_site.received("cast-a") == [{"n": "MANY"}]
    assert Marks(runtime).counts(runtime.ledger.redrives.get(request.redrive_id)) == {"delivered": 1, "unmatched": 1}
    assert audit(runtime).differences == ()
