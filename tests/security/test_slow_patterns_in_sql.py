"""No rule's SQL keeps the check of rules, or one of Spark's task slots, for longer than a moment."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from eventbridge.spark.server import SparkConnectServer
from eventbridge.spark.session import connect
from eventbridge.spark.sql_frame import CONFS
from eventbridge.transform.sql.parser import expression_problem, parse_sql
from eventbridge.transform.sql.patterns import LEAST_TEXT, NO_LIMIT, pattern_limit, pattern_problem
from eventbridge.transform.sql.run_time_limits import like_limit

#: Patterns that people write every day.
EVERYDAY = [
    r"^.*foo.*bar$",
    r".*foo.*",
    r".*foo.*bar.*",
    r"foo.*bar",
    r"(?i)error|warn(ing)?|fatal",
    r"^[\w.+-]+@[\w-]+\.[\w.-]+$",
    r"[\w.+-]+@[\w-]+\.[\w.-]+",
    r"^[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}$",
    r"^.+@.+\..+$",
    r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
    r"\d{4}-\d{2}-\d{2}",
    r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?(?:Z|[+-]\d{2}:\d{2})$",
    r"^(\d{1,2})/(\d{1,2})/(\d{4})$",
    r"^https?://[^/]+/.*\.pdf$",
    r"^(https?)://([^/:]+)(:\d+)?(/.*)?$",
    r"^/api/v1/users/[^/]+/orders/[^/]+$",
    r"^com\.example\..*$",
    r"^\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}$",
    r"^(25[0-5]|1?\d?\d)[.](25[0-5]|1?\d?\d)$",
    r"^\+?[0-9]{7,15}$",
    r"\b\d{13,16}\b",
    r"^[A-Z]{2}\d{2}[A-Z0-9]{11,30}$",
    r"^(?=.*\d)(?=.*[a-z])(?=.*[A-Z]).{8,}$",
    r"^v?(\d+)\.(\d+)\.(\d+)(-[\w.]+)?$",
    r"^(.*?),(.*?),(.*?)$",
    r'"([^"]*)"',
    r"<[^>]+>",
    r"([^/]+)$",
    r"\s+",
    r"^\s*$",
    r"^\s+|\s+$",
    r"[^a-zA-Z0-9]+",
    r"^(\w+)\s+(\w+)$",
    r"order-(\d+)-(.*)",
    r"level=(\w+)\s+msg=\"([^\"]*)\"",
]


def nested(levels: int) -> str:
    """Return lambdas inside one another, each with a cast behind it."""
    text = "1"
    for level in range(levels):
        text = f"transform(array(1), x{level} -> {text})[0]::int"
    return f"{text} = 1"


def _calls(action: Callable[[], object]) -> int:
    """Return how many functions of Python an action calls."""
    found = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal found
        found += event == "call"

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize(
    "grown",
    [
        nested,
        lambda many: "transform(array(1), x -> transform(array(1), y -> " + "+".join(["x"] * 8 * many) + ")) IS NULL",
        lambda many: "concat(" + ", ".join(["transform(array(id), x -> x || x)[0]"] * 2 * many) + ") = ''",
        lambda many: "least(" * many + "1" + ", 2)" * many + " = 1",
        lambda many: f"repeat('x', {'least(' * many}1{', 2)' * many}) = ''",
        lambda many: "filter(" * many + "array(1)" + ", x -> true)" * many + " IS NULL",
        lambda many: "aggregate(" * many + "array(1)" + ", 0L, (a, x) -> a)" * many + " IS NULL",
        lambda many: f"transform(array(1), ({', '.join(f'x{each}' for each in range(20 * many))}) -> 1) IS NULL",
        lambda many: f"id RLIKE '{'a*b?' * many}z'",
        lambda many: f"id RLIKE '{'a+[b-y]?' * many}z'",
        lambda many: f"id RLIKE '{'(' * many}a{')?' * many}z'",
        lambda many: f"id RLIKE '{'(?=' * many}a*{')' * many}z'",
        lambda many: " AND ".join([r"id RLIKE '^\\d+-\\w+ \\d+-\\w+$'"] * many),
    ],
    ids=lambda grown: grown(1),
)
def test_the_check_of_an_expression_takes_time_that_grows_as_its_text(grown: Callable[[int], str]) -> None:
    """Four times the text is at most some six times the calls of functions, whether it is refused or not."""
    small, large = grown(7), grown(28)
    expression_problem(small)  # whatever Python keeps is kept from here on

    few, many = _calls(lambda: expression_problem(small)), _calls(lambda: expression_problem(large))

    assert many <= 1.5 * few * len(large) / len(small) + 2_000


def test_lambdas_that_are_nested_too_deep_are_refused_where_the_third_begins() -> None:
    """The error names the lambda, and is found before anything is computed about the tree."""
    problem, remedy = expression_problem(nested(20)) or ("", "")

    assert problem.startswith("more than 2 lambdas are nested, line 1, column ")
    assert remedy == "Nest fewer"
    assert expression_problem(nested(2)) is None


@pytest.mark.parametrize("pattern", EVERYDAY)
def test_an_everyday_pattern_is_allowed(pattern: str) -> None:
    """It is applied to texts of 500 characters at least."""
    assert pattern_problem(pattern) is None
    assert pattern_limit(pattern) >= LEAST_TEXT


@pytest.mark.parametrize(
    ("pattern", "most"),
    [("^[a-z]+$", NO_LIMIT), ("foo", NO_LIMIT), ("a.*b", 14_142), ("^.*a.*b", 14_142), (".*a.*b", 843)],
)
def test_the_more_ways_a_pattern_can_be_tried_the_shorter_is_its_text(pattern: str, most: int) -> None:
    """A pattern that is tried in one way has no limit that an event reaches."""
    assert pattern_limit(pattern) == most


@pytest.mark.parametrize(("pattern", "most"), [("%a%", NO_LIMIT), ("%a%b%", 14_142), ("%a%b%c%", 843), ("%a" * 5, 0)])
def test_like_is_limited_by_its_wildcards(pattern: str, most: int) -> None:
    """A % at the end is tried in one way."""
    assert like_limit(pattern) == most


def _values(spark_server: SparkConnectServer, text: str) -> DataFrame:
    spark = connect(spark_server.url, "patterns")
    for name, value in CONFS.items():
        spark.conf.set(name, value)
    return spark.range(1).selectExpr(f"'{text}' AS id")


def test_a_text_that_is_too_long_for_its_pattern_fails_at_once(spark_server: SparkConnectServer) -> None:
    """The event fails with what to do; one character less, and the pattern is applied."""
    sent = parse_sql("id RLIKE 'a.*b'").to_sql()

    assert _values(spark_server, "ab" + "x" * 14_140).selectExpr(sent).collect()[0][0] is True
    with pytest.raises(PySparkException, match=r"more than 14142 characters.*use left\(x, 14142\)"):
        _values(spark_server, "ab" + "x" * 14_141).selectExpr(sent).collect()
