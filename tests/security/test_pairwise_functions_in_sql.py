"""Functions that compare each member of a collection with each other keep no task slot of Spark for long."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from eventbridge.spark.server import SparkConnectServer
from eventbridge.spark.session import connect
from eventbridge.spark.sql_frame import CONFS
from eventbridge.transform.sql.parser import expression_problem, parse_sql
from eventbridge.transform.sql.run_time_limits import EVENT_SIZE, MAXIMUM_COMPARED, MAXIMUM_HASHED, PAIRWISE

_PAIRS = "data:x::array<array<int>>"
_OTHERS = f"transform({_PAIRS}, x -> array(x[0], 7))"
_MAP, _OTHER_MAP = (f"map_from_arrays({keys}, {_PAIRS})" for keys in (_PAIRS, _OTHERS))

#: A call of each function over nested members, and what it gives for two of them.
CALLS = {
    "array_distinct": (f"size(array_distinct({_PAIRS}))", 2),
    "array_except": (f"size(array_except({_PAIRS}, {_OTHERS}))", 2),
    "array_intersect": (f"size(array_intersect({_PAIRS}, {_OTHERS}))", 0),
    "array_union": (f"size(array_union({_PAIRS}, {_OTHERS}))", 4),
    "arrays_overlap": (f"arrays_overlap({_PAIRS}, {_OTHERS})", False),
    "map_zip_with": (f"size(map_zip_with({_MAP}, {_OTHER_MAP}, (key, left_value, right_value) -> 1))", 4),
}


def _events(spark_server: SparkConnectServer, members: int) -> DataFrame:
    spark = connect(spark_server.url, "pairwise")
    for name, value in CONFS.items():
        spark.conf.set(name, value)
    data = json.dumps({"x": [[each, 2] for each in range(members)]})
    return spark.createDataFrame([(data,)], "json string").selectExpr(
        "parse_json(json) AS data", f"length(json) AS {EVENT_SIZE}"
    )


def test_every_function_that_compares_in_pairs_has_a_call_here() -> None:
    """The calls below cover the list that the limits are made from."""
    assert CALLS.keys() == PAIRWISE.keys()


@pytest.mark.parametrize("name", CALLS)
def test_nested_members_are_compared_up_to_the_limit(name: str, spark_server: SparkConnectServer) -> None:
    """One member more, and the event fails at once with what to do."""
    call, of_two = CALLS[name]
    sent = parse_sql(call).to_sql()

    assert _events(spark_server, 2).selectExpr(sent).collect()[0][0] == of_two
    assert _events(spark_server, MAXIMUM_COMPARED).selectExpr(sent).collect()[0][0] is not None
    with pytest.raises(PySparkException, match=f"more than {MAXIMUM_COMPARED} members, and {name} compares each"):
        _events(spark_server, MAXIMUM_COMPARED + 1).selectExpr(sent).collect()


@pytest.mark.parametrize("member", ["x[0]", "x[0]::string", "x[0]::double", "date_add(DATE '2026-01-01', x[0])"])
def test_members_that_spark_hashes_may_be_many(member: str, spark_server: SparkConnectServer) -> None:
    """Numbers, texts and times are compared by their hashes."""
    sent = parse_sql(f"size(array_distinct(transform({_PAIRS}, x -> {member})))").to_sql()

    assert _events(spark_server, MAXIMUM_HASHED).selectExpr(sent).collect()[0][0] == MAXIMUM_HASHED


def test_members_may_all_have_the_same_hash(spark_server: SparkConnectServer) -> None:
    """A sender can choose them so, and Spark then compares each with each other: more of them fail at once."""
    same = [(each << 32) | (each ^ 5) for each in range(MAXIMUM_HASHED + 1)]
    events = _events(spark_server, 2).selectExpr(f"parse_json('{json.dumps({'x': same})}') AS data", EVENT_SIZE)
    for name in ("array_distinct", "array_union", "array_intersect", "array_except"):
        arguments = ", ".join(["data:x::array<bigint>"] * PAIRWISE[name])

        with pytest.raises(PySparkException, match=f"more than {MAXIMUM_HASHED} members, and {name} takes too long"):
            events.selectExpr(parse_sql(f"size({name}({arguments}))").to_sql()).collect()


def test_the_schema_of_a_variant_is_refused() -> None:
    """Spark compares the fields of each object in an array with those of all before: 1 MB keeps a slot for minutes."""
    problem, remedy = expression_problem("schema_of_variant(data)") or ("", "")

    assert "schema_of_variant is not a function that an expression can call" in problem
    assert remedy == "Use json_object_keys(data:member::string)"


def test_a_missing_array_stays_missing(spark_server: SparkConnectServer) -> None:
    """The limit changes no other result: NULL stays NULL, and an empty array is taken."""
    events = _events(spark_server, 2)

    missing = parse_sql("array_distinct(data:missing::array<array<int>>) IS NULL").to_sql()
    empty = parse_sql(f"size(array_union(array(), {_PAIRS}))").to_sql()
    assert [row[:] for row in events.selectExpr(missing, empty).collect()] == [(True, 2)]
