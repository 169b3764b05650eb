"""No value in a rule's SQL becomes larger than the bound that is computed before Spark sees it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from eventbridge.spark.server import SparkConnectServer
from eventbridge.spark.session import connect
from eventbridge.spark.sql_frame import ATTRIBUTES, CONFS
from eventbridge.transform.sql.functions import FUNCTIONS, WITH_UNIT
from eventbridge.transform.sql.growth import size_of
from eventbridge.transform.sql.parser import expression_problem, parse_sql
from eventbridge.transform.sql.run_time_limits import EVENT_SIZE
from eventbridge.transform.sql.tree import Node

#: Functions of a text that are called with it alone, and of a number, a time and a document.
_OF_TEXT: Final = """
    ascii base64 bit_length btrim char_length character_length concat concat_ws crc32 hash hex initcap lcase len length
    lower ltrim luhn_check mask md5 octet_length reverse rtrim sha sha1 soundex to_binary trim try_to_binary
    try_url_decode ucase unbase64 unhex upper url_decode url_encode xxhash64 str_to_map string binary coalesce isnull
    isnotnull json_array_length json_object_keys parse_json try_parse_json
"""
_OF_NUMBER: Final = """
    abs acos acosh asin asinh atan atanh bigint bround cbrt ceil ceiling cos cosh cot csc decimal
    degrees double exp expm1 float floor int isnan ln log log10 log1p log2 negative nullifzero positive
    radians rint round sec sign signum sin sinh smallint sqrt tan tanh tinyint zeroifnull
    timestamp_seconds
"""
_OF_WHOLE_NUMBER: Final = """
    bin bit_count char chr date_from_unix_date factorial timestamp_micros timestamp_millis make_interval
    make_ym_interval make_dt_interval from_unixtime
"""
_OF_TIME: Final = """
    date day dayname dayofmonth dayofweek dayofyear hour last_day minute month monthname quarter second timestamp
    to_date to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp try_to_date try_to_timestamp
    unix_micros unix_millis unix_seconds unix_timestamp weekday weekofyear year
"""
_OF_ARRAY: Final = """
    array_compact array_distinct array_max array_min array_size array_sort cardinality size sort_array struct to_json
    arrays_zip
"""
_ITEMS: Final = "split(subject, '')"
_LETTERS: Final = "map_from_arrays(filter(split(subject, ','), (x, i) -> i = 0), array('v'))"

#: For each function, calls that make much of what they are given. `subject` and `data` are of the event's size.
CALLS: Final = [
    *(f"{name}(subject)" for name in _OF_TEXT.split()),
    *(f"{name}({number})" for name in _OF_NUMBER.split() for number in ("7", "-1.5BD", "1e300D")),
    *(f"{name}(7)" for name in _OF_WHOLE_NUMBER.split()),
    *(f"{name}(time::timestamp)" for name in _OF_TIME.split()),
    *(f"{name}({array})" for name in _OF_ARRAY.split() for array in (_ITEMS, "data:a::array<string>")),
    *(f"{name}(3, 2)" for name in ("atan2", "bit_get", "getbit", "hypot", "mod", "nanvl", "pmod", "pow", "power")),
    *(f"{name}(3, 2)" for name in ("shiftleft", "shiftright", "shiftrightunsigned", "greatest", "least")),
    *(f"{name}(1e30BD, 7)" for name in ("try_add", "try_divide", "try_mod", "try_multiply", "try_subtract")),
    "try_add(INTERVAL '99999999 1:2:3' DAY TO SECOND, INTERVAL '1' SECOND)",
    "make_interval(9999999, 1, 1, 99999999, 1, 1, 1.5) + make_interval(9999999, 1, 1, 99999999, 1, 1, 1.5)",
    "transform(split(subject, ''), x -> make_interval(9999999, 1, 1, 99999999, 1, 1, 1.5))",
    "transform(split(subject, ''), x -> time::timestamp - DATE '0001-01-01')",
    "e() + pi()",
    "boolean(1)",
    "unix_date(time::date)",
    "space(1000)",
    "conv('99999999', 10, 2)",
    "conv(subject, 36, 2)",
    "width_bucket(1, 0, 10, 5)",
    "to_number('12', '99') + try_to_number('12', '99')",
    "isnull(subject) OR equal_null(subject, id)",
    "add_months(time::timestamp, 1)",
    "convert_timezone('Asia/Tokyo', time::timestamp_ntz)",
    "date_add(time::date, 1)",
    "date_sub(time::date, 1)",
    "date_diff(time::date, time::date)",
    "datediff(time::date, time::date)",
    "dateadd(DAY, 1, time::timestamp)",
    "timestampadd(DAY, 1, time::timestamp)",
    "timestampdiff(DAY, time::timestamp, time::timestamp)",
    "date_format(time::timestamp, 'EEEE MMMM G y VV zzzz OOOO')",
    "to_char(time::timestamp, 'MMMMEEEE')",
    "to_varchar(time::timestamp, 'MMMMEEEE')",
    "to_char(-12.5BD, 'S999.99')",
    "to_char(encode(subject, 'utf-8'), 'hex')",
    "from_unixtime(0, 'EEEE MMMM')",
    "date_part('SECOND', time::timestamp)",
    "datepart('SECOND', time::timestamp)",
    "date_trunc('HOUR', time::timestamp)",
    "from_utc_timestamp(time::timestamp, 'Asia/Tokyo')",
    "to_utc_timestamp(time::timestamp, 'Asia/Tokyo')",
    "make_date(2026, 1, 2)",
    "make_timestamp(2026, 1, 2, 3, 4, 5.123456)",
    "make_timestamp_ltz(2026, 1, 2, 3, 4, 5.123456)",
    "make_timestamp_ntz(2026, 1, 2, 3, 4, 5.123456)",
    "make_dt_interval(99999999, 1, 1, 1.5)",
    "months_between(time::timestamp, time::timestamp)",
    "next_day(time::date, 'MON')",
    "trunc(time::date, 'MM')",
    "concat(subject, subject, 7)",
    "concat_ws(subject, array('a', 'b'), subject, '')",
    "concat_ws('123456789', split(subject, ''))",
    "contains(subject, 'a')",
    "startswith(subject, 'a')",
    "endswith(subject, 'a')",
    "find_in_set('a', subject)",
    "instr(subject, 'a')",
    "locate('a', subject)",
    "position('a', subject)",
    "decode(encode(subject, 'utf-16'), 'iso-8859-1')",
    "decode(encode(subject, 'utf-8'), 'utf-16')",
    "decode(1, 1, subject, subject)",
    "encode(subject, 'utf-32')",
    "format_number(1.7e308D, 38)",
    "format_string('%s%s', subject, subject)",
    "format_string('%,999.999f', -1.7e308D)",
    "printf('%1$999s%1$s', subject)",
    "left(subject, 1000)",
    "right(subject, 1000)",
    "substr(subject, 1, 1000)",
    "substring(subject, 1, 1000)",
    "left(subject, length(subject))",
    "lpad(id, 1000, '😀')",
    "rpad(id, 1000, '😀')",
    "mask(subject, '😀', '😀', '😀', '😀')",
    "overlay(subject, subject, -3, 0)",
    "overlay(subject, subject, 3)",
    "parse_url(concat('http://h/?a=', subject), 'QUERY')",
    "try_parse_url(concat('http://h/?a=', left(subject, 100)), 'QUERY', 'a')",
    "regexp(left(subject, 1000), 'a')",
    "rlike(subject, 'a')",
    "regexp_like(subject, 'a')",
    "regexp_count(subject, '.')",
    "regexp_instr(subject, 'a')",
    "regexp_extract(subject, '^(.*)$', 1)",
    "regexp_extract_all(subject, '.', 0)",
    "regexp_extract_all(subject, '(.?)', 1)",
    "regexp_substr(subject, '^.*')",
    "regexp_replace(subject, '.', '😀😀$0$0')",
    "regexp_replace(subject, '', 'abcdefghij')",
    "regexp_replace(subject, '^(.*)$', '$1$1$1$1')",
    "regexp_replace(subject, '^(?=.)(.)', '$1$1$1$1')",
    "regexp_replace(subject, '.', subject)",
    "repeat(subject, 100)",
    "replace(subject, 'a', '123456789')",
    "replace(subject, 'ΐ', '123456789')",
    "replace(subject, 'a', subject)",
    "replace(subject, 'a')",
    "sha2(subject, 512)",
    "split(subject, '')",
    "split(subject, ',', -1)",
    "split_part(subject, ',', 1)",
    "str_to_map(subject, ',', ':')",
    "substring_index(subject, ',', 1000)",
    "translate(subject, 'aΐ1', '😀😀😀')",
    "nvl(subject, id)",
    "nvl2(subject, subject, id)",
    "ifnull(subject, id)",
    "if(true, subject, id)",
    "nullif(subject, id)",
    "CASE WHEN true THEN subject ELSE id END",
    "get_json_object(subject, '$')",
    "get_json_object(subject, '$[*]')",
    "is_variant_null(data:a)",
    "to_json(data)",
    "data:a",
    "data:a::string",
    "data:a::array<string>",
    "data:a::array<int>",
    "data:a::array<double>",
    "data:a::array<decimal(38, 30)>",
    "data:a::array<variant>",
    "data::map<string, variant>",
    "data:a::array<map<string, decimal(38, 30)>>",
    "to_variant_object(named_struct('größe', subject))",
    "variant_get(data, '$.a', 'array<decimal(38, 30)>')",
    "variant_get(data, '$.a', 'string')",
    "try_variant_get(data, '$.a', 'array<double>')",
    "transform(data:a::array<double>, x -> x * 2)",
    "transform(data:a::array<int>, x -> named_struct('number', x, 'other', x * 2, 'text', 'abcdef'))",
    "transform(split(subject, ''), (x, i) -> i)",
    "transform(split(subject, ''), x -> struct(x AS a_very_long_name_of_a_field_that_stands_everywhere))",
    "transform(split(subject, ''), x -> subject)",
    "transform(split(subject, ''), x -> repeat('x', 100))",
    "transform(split(subject, ''), x -> transform(array(1, 2, 3), y -> x || 'abc'))",
    "zip_with(array(1), split(subject, ''), (x, y) -> repeat('x', 100))",
    "zip_with(split(subject, ''), array(1), (x, y) -> repeat('x', 100))",
    "zip_with(split(subject, ''), split(subject, ''), (x, y) -> x || y)",
    "aggregate(split(subject, ''), 0L, (a, x) -> a + length(x))",
    "reduce(split(subject, ''), 0L, (a, x) -> a + length(x), a -> repeat('x', 100) || a)",
    "exists(split(subject, ''), x -> x = 'z')",
    "forall(split(subject, ''), x -> x <> 'z')",
    "filter(split(subject, ''), x -> true)",
    "array_sort(split(subject, ''), (l, r) -> 0)",
    f"map_filter({_LETTERS}, (k, v) -> true)",
    f"transform_keys({_LETTERS}, (k, v) -> k || repeat('x', 100))",
    f"transform_values({_LETTERS}, (k, v) -> k || repeat('x', 100))",
    f"transform_values({_LETTERS}, (k, v) -> 1)",
    f"map_zip_with({_LETTERS}, map('b', 'w'), (k, v, w) -> repeat('x', 100))",
    f"map_entries({_LETTERS})",
    f"map_from_entries(map_entries({_LETTERS}))",
    f"map_keys({_LETTERS})",
    f"map_values({_LETTERS})",
    f"map_concat({_LETTERS}, map('b', 'w'))",
    f"map_contains_key({_LETTERS}, 'a')",
    "map_entries(extensions)",
    "transform_values(extensions, (k, v) -> repeat('x', 100))",
    "map_entries(data::map<string, variant>)",
    "map(subject, subject)",
    "named_struct('a', subject, 'b', 7)",
    "struct(subject, id AS b)",
    "array(subject, id)",
    "array_append(split(subject, ''), subject)",
    "array_prepend(split(subject, ''), subject)",
    "array_insert(split(subject, ''), 1000, subject)",
    "array_insert(array(subject), -1000, subject)",
    "array_repeat(subject, 100)",
    "array_repeat(7, 1000)",
    "array_contains(split(subject, ''), 'a')",
    "array_position(split(subject, ''), 'a')",
    "arrays_overlap(split(subject, ''), array('a'))",
    "array_remove(split(subject, ''), 'z')",
    "array_except(split(subject, ','), array('a'))",
    "array_intersect(split(subject, ','), split(subject, ','))",
    "array_union(split(subject, ','), split(subject, ''))",
    "array_join(split(subject, ''), '123456789')",
    "array_join(split(subject, ''), subject)",
    "array_join(array_repeat(CAST(NULL AS STRING), 100), ',', subject)",
    "array_join(transform(data:a::array<double>, x -> x * 2), ',')",
    "arrays_zip(split(subject, ''), array(1), array('x'), array(2))",
    "element_at(split(subject, ','), 1)",
    "try_element_at(split(subject, ','), 1)",
    "get(split(subject, ','), 0)",
    "flatten(array(split(subject, ''), split(subject, '')))",
    "sequence(1, 1000)",
    "slice(split(subject, ''), 1, 1000)",
    "subject || subject || 7",
    "-1.5 + 2",
    "split(data:a::string, '')",
    "hex(hex(subject))",
    "url_encode(subject)",
]


#: Functions that have a twin whose result is NULL where they fail. What fails is asked for event by event, which takes
#: seconds for each call.
_MAY_FAIL: Final = re.compile(r"\b(CAST(?=\((?:variant_get|`data`))|variant_get|parse_json|to_binary|url_decode)\(")
#: What a failure is here; gRPC's own is a ValueError where the message holds a long text.
_FAILED: Final = (PySparkException, ValueError)


def _names(node: Node) -> Iterator[str]:
    if node.kind == "call":
        yield str(node.value)
    for child in node.children:
        yield from _names(child)


def test_the_calls_below_are_of_every_function() -> None:
    """No function is on the list of allowed ones without a call that is measured."""
    called = {name for text in CALLS for name in _names(parse_sql(text))}

    assert set(FUNCTIONS) - called == set()
    assert {text.partition("(")[0] for text in CALLS} >= WITH_UNIT


def _texts(n: int) -> list[tuple[str, str]]:
    """Return subjects and data of about this size, each of another kind."""
    many = n // 8
    return [
        ("a" * n, json.dumps({"a": [1] * many}, separators=(",", ":"))),
        ("ΐ" * (n // 2), json.dumps({"a": ["x", "ΐ"] * (many // 2)}, separators=(",", ":"))),
        ("1," * (n // 2), '{"a":[' + ",".join(["1e6"] * many) + "]}"),
        ("[" + ",".join(["1e6"] * many) + "]", json.dumps({"a": [{"": 1}] * many}, separators=(",", ":"))),
        ("😀" * (n // 4), json.dumps({"a": "x", **{f"k{each}": each for each in range(many)}}, separators=(",", ":"))),
        ('{"' + "k" * n + '":{"":1}}', '{"a":' + "[" * 100 + "1" + "]" * 100 + "}"),
        ("\x01" * n, json.dumps({"a": "\x01" * n})),
        ("31" * (n // 2), json.dumps({"a": [True, None] * many}, separators=(",", ":"))),
    ]


def test_no_value_is_larger_than_its_bound(spark_server: SparkConnectServer) -> None:
    """Spark evaluates every call for events of three sizes; written as text or JSON, no result exceeds its bound."""
    spark = connect(spark_server.url, "growth")
    for name, value in {**CONFS, "spark.sql.ansi.enabled": "false"}.items():  # a NULL in place of most errors
        spark.conf.set(name, value)
    rows = [each for n in (400, 800, 1_600) for each in _texts(n)]
    other = {name for name in ATTRIBUTES if name not in ("id", "time", "subject")}
    numbered = [(number, *each) for number, each in enumerate(rows)]
    events = spark.createDataFrame(numbered, "number int, subject string, text string").selectExpr(
        "number",
        "octet_length(subject) + octet_length(text) + 100 AS n",
        "subject",
        "'1' AS id",
        "'2026-01-02T03:04:05Z' AS time",
        *(f"CAST('{name}' AS STRING) AS {name}" for name in sorted(other)),
        "map('fleet', '7') AS extensions",
        "CAST(NULL AS STRING) AS data_base64",
        "parse_json(text) AS data",
        f"octet_length(subject) + octet_length(text) + 100 AS {EVENT_SIZE}",
    )
    asked = _asked(events)

    found = _sizes(events, list(asked.values()))
    sizes = {text: list(zip(found[0], column, strict=True)) for text, column in zip(asked, found[1:], strict=True)}
    bounds = {text: size_of(parse_sql(text)).written_size() for text in asked}

    larger = [
        (text, n, size, bounds[text])
        for text, of_events in sizes.items()
        for n, size in of_events
        if n is not None and size is not None and size > bounds[text].value_at(n)
    ]
    measured = [text for text, of_events in sizes.items() if any(size is not None for _, size in of_events)]
    assert larger == []
    assert set(FUNCTIONS) - {name for text in measured for name in _names(parse_sql(text))} == set()


def _asked(events: DataFrame) -> dict[str, str]:
    """Return what Spark is asked for the size of each value, by the expression whose bound holds for it.

    An array, map or struct is asked for as JSON too, unless the bound forbids that.
    """
    sent = {text: _MAY_FAIL.sub(r"try_\1(", parse_sql(text).to_sql()) for text in CALLS}
    fields = events.selectExpr(*(f"({each}) AS `{at}`" for at, each in enumerate(sent.values()))).schema.fields
    asked = {}
    for (text, each), field in zip(sent.items(), fields, strict=True):
        kind = field.dataType.simpleString()
        asked[f"({text})::string" if "variant" in kind else text] = f"octet_length(CAST(({each}) AS STRING))"
        if kind.startswith(("array", "map", "struct")):
            asked[f"to_json({text})"] = f"octet_length(to_json({each}))"
    return {text: each for text, each in asked.items() if expression_problem(text) is None}


def _sizes(events: DataFrame, asked: list[str]) -> list[list[int | None]]:
    """Return the sizes of the events, and for each question a list of the sizes of values, None where one fails."""
    columns = [f"({each}) AS `{at}`" for at, each in enumerate(asked)]
    try:
        rows: list[Any] = events.selectExpr("n", *columns).orderBy("number").collect()
    except _FAILED:
        if len(asked) > 1:
            left, right = _sizes(events, asked[: len(asked) // 2]), _sizes(events, asked[len(asked) // 2 :])
            return left + right[1:]
        numbers = [row[0] for row in events.select("number").orderBy("number").collect()]
        rows = [_row(events.where(f"number = {number}"), columns) for number in numbers]
    return [[row[at] for row in rows] for at in range(len(asked) + 1)]


def _row(event: DataFrame, columns: list[str]) -> list[int | None]:
    try:
        return list(event.selectExpr("n", *columns).collect()[0])
    except _FAILED:  # the event is nothing for this function
        return [event.select("n").collect()[0][0], None]


@pytest.mark.parametrize(
    "text",
    [
        "regexp_replace(subject, '(?=(.*)).', '$1')",
        "regexp_extract_all(subject, '(?=(.*)).', 1)",
        "regexp_extract_all(subject, '(?<=(.{0,99})).', 1)",
        "regexp_extract_all(subject, '(?=(?:(?<rest>.*))).', 1)",
        "array_join(zip_with(array(1), split(array_join(zip_with(array(1), split(subject, ''), "
        "(x, y) -> repeat('x', 1000)), ''), ''), (x, y) -> repeat('x', 1000)), '')",
    ],
)
def test_an_expression_that_grows_uncounted_is_refused(text: str) -> None:
    """A group inside a look-around holds more than the match, and zip_with makes a member for each of either array."""
    assert expression_problem(text) is not None
