"""The compiled matcher over a DataFrame."""

from __future__ import annotations

import pytest

from eventbridge.errors import PatternError, UserError
from eventbridge.spark import match_frame
from eventbridge.spark.server import SparkConnectServer
from eventbridge.spark.session import connect

RULES = {
    "big": {"data": {"amount": [{"numeric": [">", 1000]}]}},
    "placed": {"type": ["order.placed"]},
    "exact": '{"data": {"amount": [9007199254740993]}}',
}


def test_rows_get_the_names_of_the_rules_they_match(spark_server: SparkConnectServer) -> None:
    """Other columns stay; a malformed event matches nothing and is marked; numbers are compared exactly."""
    rows = [
        (1, '{"type": "order.placed", "data": {"amount": 1999.00}}'),
        (2, '{"type": "order.placed", "data": {"amount": 40}}'),
        (3, '{"type": "order.paid", "data": {"amount": 9007199254740993}}'),
        (4, '{"type": '),
        (5, None),
    ]
    frame = connect(spark_server.url, "frames").createDataFrame(rows, "number long, body string")

    found = match_frame(frame, RULES, column="body").orderBy("number").collect()

    assert [(row["number"], sorted(row["matched"]), row["malformed"]) for row in found] == [
        (1, ["big", "placed"], False),
        (2, ["placed"], False),
        (3, ["big", "exact"], False),
        (4, [], True),
        (5, [], True),
    ]
    assert [row["body"] for row in found] == [text for _, text in rows]


def test_a_frame_or_pattern_that_does_not_fit_is_refused_at_once(spark_server: SparkConnectServer) -> None:
    """A missing column, a name that is taken, and an invalid pattern are errors before anything runs."""
    frame = connect(spark_server.url, "frames").createDataFrame([("{}",)], "event string")

    with pytest.raises(UserError, match="no column 'body'; it has event"):
        match_frame(frame, RULES, column="body")
    with pytest.raises(UserError, match="named matched already"):
        match_frame(match_frame(frame, RULES).drop("malformed"), RULES)
    with pytest.raises(PatternError):
        match_frame(frame, {"wrong": {"type": [{"prefx": "a"}]}})
