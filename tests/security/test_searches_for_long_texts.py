"""A sender's long text that a rule looks for in another one keeps no task slot of Spark for long."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from eventbridge.spark.server import SparkConnectServer
from eventbridge.spark.session import connect
from eventbridge.spark.sql_frame import CONFS
from eventbridge.transform.sql.parser import parse_sql

#: A call of each function that looks for one text in another: {t} and {n}.
CALLS = {
    "contains": "contains({t}, {n})",
    "instr": "instr({t}, {n})",
    "locate": "locate({n}, {t})",
    "locate from": "locate({n}, {t}, length({n}))",
    "position": "position({n}, {t}, 2)",
    "replace": "replace({t}, {n}, 'x')",
    "replace by nothing": "replace({t}, {n})",
    "split_part": "split_part({t}, {n}, 2)",
    "split_part from the end": "split_part({t}, {n}, -1)",
    "substring_index": "substring_index({t}, {n}, 1)",
    "substring_index from the end": "substring_index({t}, {n}, -2)",
}
_TEXTS = ("", "a", "aa", "ab", "b", "aab", "ababab", "é", "éaé", "😀", "a😀a", "a,b", ",", ".*", "A")
_DATA = {"t": "data:t::string", "n": "data:n::string"}


def _events(spark_server: SparkConnectServer, *pairs: tuple[str | None, str | None]) -> DataFrame:
    spark = connect(spark_server.url, "searches")
    for name, value in CONFS.items():
        spark.conf.set(name, value)
    rows = [(json.dumps({"t": text, "n": wanted}),) for text, wanted in pairs]
    # the planner cannot see through a function in Python, as in an installation
    events = spark.createDataFrame(rows, "json string").mapInArrow(lambda each: each, "json string")
    return events.selectExpr("parse_json(json) AS data", "CAST(length(json) AS BIGINT) AS __size")


@pytest.mark.parametrize("wanted", ["a" * 200_000 + "b", "b" + "a" * 200_000])
@pytest.mark.parametrize("name", CALLS)
def test_a_long_text_in_a_long_one_fails_at_once(name: str, wanted: str, spark_server: SparkConnectServer) -> None:
    """The error names the function, the lengths and the limit."""
    events = _events(spark_server, ("a" * 500_000, wanted))

    with pytest.raises(PySparkException) as caught:
        events.selectExpr(parse_sql(CALLS[name].format(**_DATA)).to_sql()).collect()

    said = (
        f"{name.partition(' ')[0]} looks for a text of 200001 bytes in one of 500000 bytes, and may compare "
        "1,000,000,000 bytes at most: use left(x, 1000) of the text that it looks for"
    )
    assert said in str(caught.value)


@pytest.mark.parametrize("call", [each for name, each in CALLS.items() if " " not in name])
def test_a_lambda_over_one_member_fails_too(call: str, spark_server: SparkConnectServer) -> None:
    """No lambda is needed to make the search long, and none hides it."""
    events = _events(spark_server, ("a" * 500_000, "a" * 200_000 + "b"))
    text = f"transform(array({_DATA['t']}), x -> {call.format(t='x', n=_DATA['n'])})"

    with pytest.raises(PySparkException, match="may compare 1,000,000,000 bytes at most"):
        events.selectExpr(parse_sql(text).to_sql()).collect()


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_every_other_search_has_its_result(call: str, spark_server: SparkConnectServer) -> None:
    """A call returns what Spark's own function returns: for NULL, for no text at all, and for any characters."""
    pairs = [(text, wanted) for text in (*_TEXTS, None) for wanted in (*_TEXTS, None)]
    events = _events(spark_server, *pairs)
    plain = events.selectExpr("CAST(data:t AS STRING) AS t", "CAST(data:n AS STRING) AS n")

    found = events.selectExpr(parse_sql(call.format(**_DATA)).to_sql()).collect()

    assert [row[0] for row in found] == [row[0] for row in plain.selectExpr(call.format(t="t", n="n")).collect()]


@pytest.mark.parametrize(
    ("text", "wanted"), [("a" * 500_000 + "b", "a" * 2_000 + "b"), ("a" * 200_000, "a" * 300_000), ("ab" * 9, "b")]
)
def test_a_search_up_to_the_limit_has_its_result(text: str, wanted: str, spark_server: SparkConnectServer) -> None:
    """A text of a thousand bytes is looked for in each event, and a longer one where the other one is short."""
    sent = parse_sql(CALLS["contains"].format(**_DATA)).to_sql()

    assert _events(spark_server, (text, wanted)).selectExpr(sent).collect()[0][0] is (wanted in text)


@pytest.mark.parametrize(
    "text", ["contains(data:t::string, 'express')", "split_part(id, '-', 2)", "instr('a,b,c', data:n::string) > 0"]
)
def test_a_search_for_a_short_literal_has_no_limit(text: str) -> None:
    """Nor has one in a literal: neither is long, whatever a sender chooses."""
    assert "raise_error" not in parse_sql(text).to_sql()


def test_bytes_are_looked_for_too(spark_server: SparkConnectServer) -> None:
    """`contains` of binary values has the same limit and results."""
    sent = parse_sql("contains(data:t::string::binary, data:n::string::binary)").to_sql()

    assert _events(spark_server, ("abc", "bc")).selectExpr(sent).collect()[0][0] is True
    with pytest.raises(PySparkException, match="contains looks for a text of 200001 bytes"):
        _events(spark_server, ("a" * 500_000, "a" * 200_000 + "b")).selectExpr(sent).collect()
