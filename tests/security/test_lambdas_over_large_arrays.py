"""A lambda over a large array keeps no task slot of Spark for hours, whatever its body reads."""

from __future__ import annotations

import json
import re

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from eventbridge.spark.server import SparkConnectServer
from eventbridge.spark.session import connect
from eventbridge.spark.sql_frame import CONFS, query_frame
from eventbridge.transform.sql.functions import HIGHER_ORDER
from eventbridge.transform.sql.parser import expression_problem, parse_sql
from eventbridge.transform.sql.run_time_limits import EVENT_SIZE, MAXIMUM_DIGITS, MAXIMUM_REMOVED

_NUMBERS = "data:x::array<int>"
_TEXTS = "split(subject, ',')"
_MAP = f"map_from_arrays({_TEXTS}, {_TEXTS})"
_LONG = "length(data:long::string)"

#: A call of each function with lambdas, whose body is to be put in place of BODY, and what that may read of its own.
CALLS = {
    "aggregate": (f"aggregate({_NUMBERS}, 0L, (a, x) -> a + BODY)", "x + 1"),
    "array_sort": (f"array_sort({_NUMBERS}, (l, r) -> l - r + BODY)", "l"),
    "exists": (f"exists({_TEXTS}, x -> BODY > 7)", "length(x)"),
    "filter": (f"filter({_TEXTS}, x -> BODY > 7)", "length(upper(x))"),
    "forall": (f"forall({_NUMBERS}, x -> BODY > 7)", "x"),
    "map_filter": (f"map_filter({_MAP}, (k, v) -> BODY > 7)", "length(k)"),
    "map_zip_with": (f"map_zip_with({_MAP}, {_MAP}, (k, v, w) -> BODY)", "length(v || w)"),
    "reduce": (f"reduce({_NUMBERS}, 0L, (a, x) -> a + BODY, a -> a + 1)", "x"),
    "transform": (f"transform({_NUMBERS}, (x, i) -> BODY)", "x + i"),
    "transform_keys": (f"transform_keys({_MAP}, (k, v) -> k || BODY)", "length(k)"),
    "transform_values": (f"transform_values({_MAP}, (k, v) -> BODY)", "length(v)"),
    "zip_with": (f"zip_with({_NUMBERS}, {_NUMBERS}, (x, y) -> BODY)", "x * y"),
}
#: Bodies that take the longer for each member the larger the event is.
HEAVY = [
    _LONG,
    "length(data::string)",
    "length(upper(subject))",
    f"aggregate({_NUMBERS}, 0L, (b, y) -> b + y)::int",
    f"size(filter({_TEXTS}, y -> y = 'a'))",
    f"size(array_sort({_NUMBERS}))",
    f"array_position({_NUMBERS}, 7)",
    "size(map_keys(extensions))",
    "CAST(data:long::boolean AS INT)",
]

_FAILS = re.compile(r"the lambda of (\w+) takes too long for (\d+) members in an event of (\d+) bytes.*1, (\d+)\)")


def _limited(text: str) -> set[str]:
    """Return the functions of an expression whose arrays are limited."""
    return set(re.findall(r"the lambda of (\w+) takes too long", parse_sql(text).to_sql()))


def test_every_function_with_lambdas_has_a_call_here() -> None:
    """No function with lambdas is left out of the calls above."""
    assert CALLS.keys() == HIGHER_ORDER


@pytest.mark.parametrize("body", HEAVY)
@pytest.mark.parametrize("name", CALLS)
def test_a_body_that_reads_the_event_has_a_limit(name: str, body: str) -> None:
    """Work that grows with the event, for each member of an array that grows with it, is counted at run time."""
    assert name in _limited(CALLS[name][0].replace("BODY", body))


@pytest.mark.parametrize("name", sorted(set(CALLS) - {"array_sort"}))
def test_a_body_that_reads_its_own_member_has_no_limit(name: str) -> None:
    """All members together are as large as the event, so the whole takes no longer than reading it."""
    call, own = CALLS[name]

    assert _limited(call.replace("BODY", own)) == set()


@pytest.mark.parametrize(
    "text",
    [
        "exists(data:items::array<variant>, i -> i:price::double > 100 AND i:name::string = 'x')",
        "transform(data:items::array<variant>, i -> exists(i:tags::array<string>, t -> t = 'x'))",
        "transform(data:items::array<variant>, i -> i:price::decimal(10, 2) * 2)",
        "array_sort(data:x::array<double>, (l, r) -> IF(l < r, 1, -1))",
        "transform_values(data::map<string, variant>, (k, v) -> v:n::int)",
        "transform(sequence(1, 1000), x -> data:limit::int + x)",
        "filter(split(subject, ','), x -> x IN ('a', 'b'))",
    ],
)
def test_everyday_lambdas_have_no_limit(text: str) -> None:
    """These read their own members, or are called for few."""
    assert _limited(text) == set()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (f"transform({_TEXTS}, x -> exists({_TEXTS}, y -> y = x))", {"transform", "exists"}),
        (f"transform({_TEXTS}, x -> exists(split(x, ';'), y -> y = x))", {"exists"}),
        ("filter(split(subject, ','), x -> x RLIKE '.*a.*b')", {"filter"}),
        ("filter(split(subject, ','), x -> contains(data:long::string, x))", {"filter"}),
        (
            "transform(data:items::array<variant>, i -> exists(i:tags::array<string>, t -> length(subject) > 1))",
            {"transform", "exists"},
        ),
    ],
)
def test_lambdas_inside_one_another_are_limited_where_they_multiply(text: str, names: set[str]) -> None:
    """The inner one is limited if it reads more than its member, the outer one if the inner one takes long."""
    assert _limited(text) >= names


@pytest.mark.parametrize(
    "text",
    [
        "transform(data:x::array<int>, 7)",
        f"transform({_TEXTS}, transform({_TEXTS}, transform({_TEXTS}, length(subject))))",
        "aggregate(data:x::array<int>, 0L, 7)",
        "array_sort(data:x::array<int>, 7)",
        "transform(x -> 1, data:x::array<int>)",
        "aggregate(data:x::array<int>, (a, x) -> a, 0L)",
    ],
)
def test_a_body_without_a_lambda_is_refused(text: str) -> None:
    """Spark would call it for each member, at any depth."""
    problem, _ = expression_problem(text) or ("", "")

    assert "needs a lambda here" in problem or "this is a lambda" in problem


def test_no_lambda_names_the_size_of_the_event() -> None:
    """The column that limits are computed from cannot be hidden by a value of the same name."""
    assert expression_problem(f"transform({_NUMBERS}, {EVENT_SIZE} -> 1)") is not None


def test_capitals_in_a_format_are_refused() -> None:
    """Java moves the whole text for each character whose capital has two: 500,000 of them take minutes."""
    assert expression_problem("format_string('%-7S', subject)") is not None
    assert expression_problem("format_string('%s %d%% SALE', subject, 7)") is None


def _events(spark_server: SparkConnectServer, data: dict[str, object], subject: str = "a,b") -> DataFrame:
    spark = connect(spark_server.url, "lambdas")
    for name, value in CONFS.items():
        spark.conf.set(name, value)
    text = json.dumps(data, separators=(",", ":"))
    events = spark.createDataFrame([(text, subject)], "json string, subject string")
    # the planner cannot see through a function in Python, as in an installation
    return events.mapInArrow(lambda rows: rows, "json string, subject string").selectExpr(
        "subject",
        "parse_json(json) AS data",
        f"CAST(length(json) + length(subject) AS BIGINT) AS {EVENT_SIZE}",
        "map('fleet', '7') AS extensions",
        "1 AS __number",
        "'' AS __stand_ins",
    )


@pytest.mark.parametrize("name", CALLS)
def test_an_event_of_a_megabyte_fails_at_once(name: str, spark_server: SparkConnectServer) -> None:
    """The error says how many members are too many; with a small event the same expression has a value."""
    sent = parse_sql(CALLS[name][0].replace("BODY", f"({_LONG} - {_LONG} + {_LONG})")).to_sql()
    members = 100_000
    large = _events(
        spark_server, {"x": [7] * members, "long": "x" * 300_000}, ",".join(str(each) for each in range(members))
    )

    small = _events(spark_server, {"x": [7, 8], "long": "x" * 9}).selectExpr(sent).collect()[0][0]
    with pytest.raises(PySparkException, match=_FAILS) as caught:
        large.selectExpr(sent).collect()

    assert small is not None
    found = _FAILS.search(str(caught.value))
    assert found is not None
    assert (found[1], int(found[2])) == (name, members)
    assert int(found[4]) < members


def test_as_many_members_as_the_error_says_are_taken(spark_server: SparkConnectServer) -> None:
    """What the error advises works."""
    events = _events(spark_server, {"x": [7] * 100_000, "long": "x" * 100_000})
    with pytest.raises(PySparkException, match=_FAILS) as caught:
        events.selectExpr(parse_sql(f"size(filter({_NUMBERS}, x -> {_LONG} > x))").to_sql()).collect()
    most = int(_FAILS.findall(str(caught.value))[0][3])

    sliced = parse_sql(f"size(filter(slice({_NUMBERS}, 1, {most}), x -> {_LONG} > x))").to_sql()

    assert events.selectExpr(sliced).collect()[0][0] == most


def test_data_is_parsed_once_for_an_event(spark_server: SparkConnectServer) -> None:
    """Spark does not move the parsing of the data into a lambda, which would do it for each member."""
    where = parse_sql("exists(split(subject, ','), x -> data:n::string = x)").to_sql()

    asked = query_frame(_events(spark_server, {"n": "b"}), where, {"__value0": parse_sql("data:n").to_sql()})

    plan = asked._explain_string(extended=True).partition("== Optimized Logical Plan ==")[2]
    assert "exists(" in plan
    assert not [line for line in plan.splitlines() if "exists(" in line and "parseJson" in line]
    assert asked.collect()[0]["__kept"] is True


@pytest.mark.parametrize(
    "number",
    ["9" * (MAXIMUM_DIGITS + 1), "0." + "3" * (MAXIMUM_DIGITS + 1), "1e-1000000000", " -1.5E-99999", ".5e-100000"],
)
@pytest.mark.parametrize(
    "text",
    [
        "TRY_CAST(subject AS DECIMAL(38, 2))",
        "subject::decimal",
        "decimal(subject)",
        "data:d::decimal(38, 2)",
        "data:a::array<decimal(38, 2)>",
        "CAST(map(1, subject) AS MAP<int, decimal(9, 2)>)",
        "try_variant_get(data, '$.d', 'decimal(38, 2)')",
        "variant_get(data, '$.a', 'array<dec>')",
        "ceil(subject, 2)",
        "floor(subject, 2)",
        "to_char(subject, '99')",
        "make_timestamp(2026, 1, 1, 1, 1, subject)",
        "make_dt_interval(1, 1, 1, subject)",
        "make_interval(1, 1, 1, 1, 1, 1, subject)",
    ],
)
def test_a_decimal_of_many_digits_fails_at_once(text: str, number: str, spark_server: SparkConnectServer) -> None:
    """Java takes the square of the digits, or divides by the power of ten: twelve characters would take hours."""
    events = _events(spark_server, {"d": number, "a": ["1", number]}, number)

    with pytest.raises(PySparkException, match="digits or an exponent below -9999"):
        events.selectExpr(parse_sql(text).to_sql()).collect()


@pytest.mark.parametrize(
    "number",
    ["7", " -1.50 ", "1e3", "1e-9999", "9" * 38, "0." + "3" * 900, "1e400", "abc", "", "1e-5", "12e-3456-7890", "٣"],
)
def test_other_texts_are_decimals_as_before(number: str, spark_server: SparkConnectServer) -> None:
    """The limit changes no value, and no NULL."""
    events = _events(spark_server, {}, number)
    text = "TRY_CAST(subject AS DECIMAL(38, 6))"

    assert events.selectExpr(parse_sql(text).to_sql()).collect() == events.selectExpr(text).collect()


@pytest.mark.parametrize("text", ["btrim(data:t::string, subject)", "ltrim(subject, data:t::string)"])
def test_few_characters_are_removed_at_a_time(text: str, spark_server: SparkConnectServer) -> None:
    """Spark looks at each of them for each character of the text."""
    few, many = (_events(spark_server, {"t": "aab"}, "x" * each + "a") for each in (7, MAXIMUM_REMOVED))

    assert few.selectExpr(parse_sql(text).to_sql()).collect()[0][0] == "b"
    with pytest.raises(PySparkException, match=f"more than {MAXIMUM_REMOVED} characters to remove"):
        many.selectExpr(parse_sql(text).to_sql()).collect()
