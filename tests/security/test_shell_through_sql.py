"""A rule's SQL runs no program, reads no environment, file or session, and makes no more than it is given."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from eventbridge.errors import RuleFileError
from eventbridge.routing.job import RouteJob, RuleShare
from eventbridge.rules import Rule, Transform
from eventbridge.rules.load import load_rules
from eventbridge.spark.ask_sql import with_sql_results
from eventbridge.spark.server import SparkConnectServer
from eventbridge.spark.session import connect
from eventbridge.spark.sql_frame import ATTRIBUTES, CONFS
from eventbridge.store.open import open_store
from eventbridge.targets.file.fields import FileFields
from eventbridge.transform.sql.functions import FUNCTIONS
from eventbridge.transform.sql.parser import expression_problem, parse_sql
from eventbridge.transform.sql.run_time_limits import EVENT_SIZE

#: Expressions that begin a program, in all the forms that Spark reads as one.
SHELL = [
    "(MAP 1 USING 'sh -c id' AS (x STRING)) = '1'",
    "(map 1 using 'sh -c id' as (x string)) = '1'",
    "(MAP/**/1/**/USING 'id') = '1'",
    "(MAP\n1\nUSING\n'id') = '1'",
    "(MAP\u00a01 USING 'id') = '1'",
    "(REDUCE 1 USING 'id' AS (x STRING)) = '1'",
    "EXISTS(MAP 1 USING 'id')",
    "EXISTS (REDUCE 1 USING 'id')",
    "id IN (MAP 1 USING 'id')",
    "(SELECT TRANSFORM(1) USING 'id') = '1'",
    "(FROM (SELECT 1) MAP 1 USING 'id') = '1'",
    "(WITH t AS (SELECT 1) SELECT TRANSFORM(1) USING 'id') = '1'",
    "(VALUES (1)) = 1",
    "(TABLE x) = 1",
    "true) OR (MAP 1 USING 'id'",
    "array((MAP 1 USING 'id'))[0] = '1'",
    "transform(array(1), x -> (MAP x USING 'id'))",
    "CASE WHEN (MAP 1 USING 'id') = '1' THEN true END",
    "CAST((MAP 1 USING 'id') AS STRING) = '1'",
    "data:[(MAP 1 USING 'id')]",
    "/*+ REPEAT(1) */ (MAP 1 USING 'id') = '1'",
    "/* /* */ */ (MAP 1 USING 'id') = '1'",
    "-- \\\n(MAP 1 USING 'id') = '1'",
    "`id` IN (FROM x MAP 1 USING 'id')",
    "\uff2d\uff21\uff30 1 USING 'id'",
]
#: Calls of Java, in all the forms in which a function can be named.
JAVA = [
    "reflect('java.lang.Runtime', 'getRuntime') = ''",
    "java_method('java.lang.System', 'getenv', 'HOME') = ''",
    "try_reflect('java.lang.System', 'getenv', 'HOME') = ''",
    "reflect/**/('java.lang.System', 'getenv', 'HOME') = ''",
    "reflect -- x\n('java.lang.System', 'getenv', 'HOME') = ''",
    "ReFlEcT\t('java.lang.System', 'getenv', 'HOME') = ''",
    "`reflect`('java.lang.System', 'getenv', 'HOME') = ''",
    "`reflect`/**/('java.lang.System', 'getenv', 'HOME') = ''",
    "IDENTIFIER('reflect')('java.lang.System', 'getenv', 'HOME') = ''",
    "IDENTIFIER('ref' || 'lect')('java.lang.System', 'getenv', 'HOME') = ''",
    "system.builtin.reflect('java.lang.System', 'getenv', 'HOME') = ''",
    "builtin.reflect('java.lang.System', 'getenv', 'HOME') = ''",
    "`system`.`builtin`.`reflect`('java.lang.System', 'getenv', 'HOME') = ''",
    "extensions.reflect('java.lang.System', 'getenv', 'HOME') = ''",
    "data:reflect('java.lang.System')",
    "data:a.reflect('java.lang.System')",
    "transform(array('HOME'), reflect -> reflect('java.lang.System', 'getenv', 'HOME'))[0] = ''",
    "\\u0072eflect('java.lang.System', 'getenv', 'HOME') = ''",
    "\uff52eflect('java.lang.System', 'getenv', 'HOME') = ''",
    "re\ufb02ect('java.lang.System', 'getenv', 'HOME') = ''",
    "{fn reflect('java.lang.System', 'getenv', 'HOME')} = ''",
]
#: What looks beyond the event: sessions, files, clocks, chance, other events, and functions that fail on purpose.
BEYOND = [
    "current_user() = 'root'",
    "current_user = 'root'",
    "session_user() = 'root'",
    "user() = 'root'",
    "current_database() = 'default'",
    "current_catalog() = 'spark_catalog'",
    "current_schema = 'default'",
    "version() > ''",
    "input_file_name() > ''",
    "input_file_block_start() > 0",
    "spark_partition_id() = 0",
    "monotonically_increasing_id() = 0",
    "rand() < 0.5",
    "uuid() = id",
    "now() > time",
    "current_timestamp() > time",
    "current_timestamp > time",
    "current_date = time",
    "unix_timestamp() > 0",
    "raise_error(data:card::string)",
    "assert_true(data:card::string = '1')",
    "explode(array(1, 2)) = 1",
    "count(*) > 1",
    "rank() OVER (ORDER BY id) = 1",
    "upper(id) OVER () = 'x'",
    "max(id) FILTER (WHERE true) = 'x'",
    "xpath_string('<!DOCTYPE a [<!ENTITY b SYSTEM \"file:///etc/passwd\">]><a>&b;</a>', 'a') > ''",
    "from_xml('<a/>', 'a STRING') IS NULL",
    "from_avro(data_base64, '{}') IS NULL",
    "read_files('/etc/passwd') IS NULL",
    "id IN (SELECT * FROM text.`/etc/passwd`)",
    "(SELECT 1) = 1",
    "(TABLE text.`/etc/passwd`) = ''",
    "getvariable('x') = 1",
    "SQL_KEYWORDS() IS NULL",
    "aes_decrypt(unbase64(id), '1234567890123456') IS NULL",
    ":name = 1",
    "? = 1",
    "@x = 1",
    "$x = 1",
    "{{ id }} = 1",
    "${env:HOME} = ''",
    "id; DROP TABLE x",
    "id\u0000",
    "id\u200b",
    "__data = ''",
    "`__number` = 1",
    "try_aes_decrypt(id, id) IS NULL",
]


def grown(step: str, levels: int, begin: str = "id") -> str:
    """Return calls inside one another, in which `{}` stands for the next inner one."""
    text = begin
    for _ in range(levels):
        text = step.replace("{}", text)
    return text


#: Texts that double, or more, with every call.
GROWING = [
    f"element_at({grown('transform({}, x -> x || x || x || x)', 10, 'array(id)')}, 1)",
    grown("element_at(transform(array({}), x -> concat(x, x, x, x)), 1)", 8),
    grown("hex({})", 20),
    grown("decode(encode({}, 'utf-16'), 'iso-8859-1')", 10),
    grown("url_encode({})", 10),
    grown("to_json(array({}))", 10),
    grown("format_string('%1$s%1$s%1$s%1$s', {})", 8),
    grown("replace({}, 'a', id)", 3),
    grown("regexp_replace({}, '', 'abcdefghij')", 5),
    grown("array_join(split({}, ''), id)", 3),
    grown("concat_ws({}, split({}, ''))", 3),
    grown("replace({}, 'a', 'aaaaaaaaaa')", 5),
]
#: What would take all memory or never end.
EXPENSIVE = [
    "repeat('x', 3000000000) = ''",
    "repeat('x', 3000000000L) = ''",
    "repeat('x', data:n::int) = ''",
    "repeat(repeat('x', 1000), 1000) = ''",
    "repeat('x', - -3000000) = ''",
    "repeat('x', greatest(data:n::int, 10)) = ''",
    "space(2000000000) = ''",
    "lpad(id, 2000000000, 'x') = ''",
    "rpad(id, 2000000000) = ''",
    "rpad(id, data:n::int) = ''",
    "size(sequence(1, 1000000000)) > 0",
    "size(sequence(1, -1000000000)) > 0",
    "size(sequence(1, data:n::int)) > 0",
    "size(sequence(1, least(data:n::int, 10))) > 0",
    "size(sequence(1, 10, 0)) > 0",
    "size(sequence(date'2000-01-01', date'9000-01-01')) > 0",
    "size(array_repeat(id, 2000000000)) > 0",
    "size(array_insert(array(1), 2000000000, 1)) > 0",
    "size(array_insert(array(1), least(data:n::int, 1), 1)) > 0",
    "size(transform(sequence(1, 1000), x -> sequence(1, 1000))) > 0",
    "aggregate(sequence(1, 40), 'x', (a, i) -> a || a) = ''",
    "aggregate(sequence(1, 40), named_struct('s', 'x'), (a, i) -> named_struct('s', a.s || a.s)).s = ''",
    "aggregate(sequence(1, 40), array(1), (a, i) -> concat(a, a))[0] = 1",
    "reduce(sequence(1, 40), NULL, (a, i) -> concat(a, a))[0] = 1",
    "forall(array(1), a -> forall(array(1), b -> forall(array(1), c -> a = b)))",
    "format_string('%1000000000d', 1) = ''",
    "format_string(id, 1) = ''",
    "printf('%.1000000000f', 1D) = ''",
    "round(1D, 1000000000) = 1",
    "bround(1D, -1000000000) = 1",
    "format_number(1D, 1000000000) = ''",
    "1e1000000000 = 1",
    "id RLIKE '(a+)+$'",
    "id RLIKE '(a|a)*$'",
    "id RLIKE '(a|aa)+$'",
    "id RLIKE '((a+))+$'",
    "id RLIKE '((a)+){1,50}$'",
    "id RLIKE '(?:a*)*$'",
    "id RLIKE '([a-z]+)*$'",
    "id RLIKE '(.*)\\\\1'",
    "id RLIKE '.*.*.*.*.*x'",
    "id RLIKE data:pattern::string",
    "id RLIKE '" + "a" * 1_001 + "'",
    "regexp_replace(id, '(a+)+$', '') = ''",
    "regexp_like(id, data:pattern::string)",
    "split(id, '(a+)+$')[0] = ''",
    "str_to_map(id, '(a+)+$') IS NULL",
    "parse_url(id, 'QUERY', '(a+)+$') = ''",
    "id RLIKE '.*.*.*.*z'",
    "id RLIKE '^.*.*.*.*z'",
    r"id RLIKE r'[\c\](a+)+b]'",
    r"id RLIKE r'[a[b](a+)+]'",
    "regexp_replace(id, '.*.*.*.*z', '') = ''",
    "id LIKE '%a%a%a%a%a%'",
    "id LIKE '%a%a%a%z'",
    "id LIKE data:pattern::string",
    "(" * 200 + "true" + ")" * 200,
    "NOT " * 200 + "true",
    "1 = " + "- " * 200 + "1",
    "1 = " + "1 + " * 1_100 + "1",
    "id[" * 200 + "1" + "]" * 200,
    "1" + "::int" * 200 + " = 1",
    "data" + ":a" * 200 + " = 1",
    "CAST(id AS " + "array<" * 200 + "int" + ">" * 200 + ") IS NULL",
    "true OR " * 2_000 + "true",
    # what grows with each of the calls inside one another
    *(f"{grown} = ''" for grown in GROWING),
    f"size(array({GROWING[0]}))::int = 1",
    f"exists(array(1), x -> {GROWING[0]} = '')",
    f"aggregate(array(1), 0L, (a, x) -> a + length({GROWING[0]})) = 1",
    f"left({GROWING[0]}, 1) = ''",
    "format_string('%s%<1000000000s', id) = ''",
    "format_string('%1$s%-<1000000000s', id) = ''",
    # what Java reads in another way than it looks, or in many ways
    r"id RLIKE r'\c[(a+)+]b'",
    "id RLIKE '(?x)(a+) +b'",
    "id RLIKE '(?x)(a+)# x\\n+b'",
    "id RLIKE '(?x: (a+) +)b'",
    "id RLIKE '(?d)(a+)b'",
    "id RLIKE '(?:a?){30}a{30}'",
    "id RLIKE '" + "a?" * 30 + "a" * 30 + "'",
    "id RLIKE '" + "(a|a)" * 30 + "b'",
    "id RLIKE '" + "a{0,99}" * 5 + "b'",
    "id RLIKE '(a{\uff11,}){\uff11,}b'",
]
#: Digits that Python takes for digits, and Spark does not.
OTHER_DIGITS = [
    "repeat(id, \uff11\uff10) = ''",
    "data:a[\uff11]::int = 1",
    "\u0661 = 1",
    "1\uff11 = 1",
    "1.\uff11 = 1",
    "1e\uff11 = 1",
    "time::timestamp > time::timestamp - INTERVAL \uff11 DAY",
    "CAST(id AS DECIMAL(\uff11\uff10, 2)) = 1",
]

#: One expression for each thing that is allowed, with operators whose order Spark could read in another way.
ALLOWED = [
    "1 + 2 * 3 - 4 / 2 % 3",
    "2 - 1 - 1",
    "8 / 2 / 2",
    "7 DIV 2 * 2",
    "- 2 * 3 + - -1",
    "1 | 2 & 3 ^ 4",
    "~1 + 1",
    "NOT true AND false",
    "!true = true",
    "NOT id = '1' OR true AND false",
    "id || 'a' = id || 'b'",
    "1 = 1 = true",
    "1 < 2 IS TRUE",
    "NOT 1 BETWEEN 0 AND 2 AND true",
    "true BETWEEN false AND 2 = 2",
    "id IN ('1', '2') AND id NOT IN ('3')",
    "NULL IS NOT DISTINCT FROM NULL",
    "id IS DISTINCT FROM '1'",
    "(id = 'x') IS UNKNOWN",
    "id <=> NULL",
    "id LIKE '_%' ESCAPE '/'",
    "'a_b' LIKE 'a\\_b' AND 'a\\_b' LIKE r'a\\\\_b'",
    "id ILIKE ANY ('A%', '1%') OR id NOT LIKE ALL ('x', 'y')",
    "'ab' RLIKE r'^\\w+$' AND 'ab' RLIKE '\\\\w'",
    "'it\\'s \\\\ \\n \\t \\u00e9 \\U0001F600' || \"double 'quotes'\" || r'raw \\n'",
    "'${env:HOME} ${spark.app.name} ${system:user.name}'",
    "'--' || '/*' || '*/' || ';' || '`'",
    "'é😀' || 'ß'",
    "X'1F20'",
    "1L + 2S + 3Y + 1.5BD + 1.25 + 1e3 + 1E-2D + 2F + .5 + 1.",
    "CASE WHEN id = '1' THEN 'a' WHEN true THEN 'b' ELSE 'c' END",
    "CASE id WHEN '1' THEN 1 END + 1",
    "CAST('1.50' AS DECIMAL(5, 2))::string::double",
    "TRY_CAST('x' AS INT) IS NULL",
    "data:n::int + data:items[0].price::decimal(12, 2)",
    "data:['a b']::string || data:items[1]['sku']::string",
    "data:['größe']::int",
    "-data:n::int",
    "data:items::array<variant>[0]:sku::string",
    "size(data:items::array<map<string, variant>>)",
    "extensions.fleet || extensions['fleet']",
    "EXTENSIONS.fleet || ID || DATA:n::string",
    "DATE '2026-01-02' + INTERVAL 1 DAY",
    "timestamp '2026-01-02 03:04:05' - INTERVAL '1' HOUR",
    "time::timestamp + INTERVAL '1 2:03:04' DAY TO SECOND",
    "extract(HOUR FROM time::timestamp) + extract(week FROM time::timestamp)",
    "timestampdiff(MINUTE, time::timestamp, time::timestamp + INTERVAL 2 HOURS)",
    "dateadd(DAY, 1, time::timestamp)",
    "date_format(time::timestamp, \"yyyy-MM-dd'T'HH:mm\")",
    "transform(array(1, 2), x -> x + 1)[1]",
    "transform(array(1, 2), (x, i) -> x * 10 + i)",
    "aggregate(array(1, 2, 3), 0L, (acc, x) -> acc + x, acc -> acc * 10)",
    "aggregate(array(1, 2), named_struct('s', 0L, 'n', 0), (a, x) -> named_struct('s', a.s + x, 'n', a.n + 1)).s",
    "exists(array(1, 2), x -> x > 1) AND forall(array(1), x -> exists(array(1), y -> x = y))",
    "filter(map_values(map('a', 1, 'b', 2)), value -> value > 1)",
    "array_sort(array(1, 3, 2), (l, r) -> r - l)",
    "map_filter(map('a', 1), (k, v) -> v > 0)['a']",
    "struct(id AS a, data:n::int AS b).b",
    "if(id = '1', left('abc', 2), right('abc', 1))",
    "regexp_replace('a1b22', r'\\d+', '#') || split('a,b', ',')[1]",
    "lpad(id, 5, '0') || repeat('ab', 3) || size(sequence(1, least(greatest(data:n::int, 1), 5)))",
    "format_string('%5.2f %s', 1.5D, id)",
    "round(2.345, 2) + bround(2.5D) + ceil(1.2) + floor(-1.2, 0)",
    "to_json(named_struct('a', 1, 'b', array(1)))",
    "variant_get(data, '$.n', 'int') + try_variant_get(data, '$.items[0].price', 'double')",
    "sha2(id, 256) || md5(id)",
    "coalesce(NULL, nullif(id, '1'), 'x')",
    "to_json(to_variant_object(named_struct('größe', 1)))",
    "replace(replace(replace(id, '&', '&amp;'), '<', '&lt;'), '>', '&gt;')",
    "replace('Dear NAME', 'NAME', data:name::string)",
    "array_join(transform(array('a', 'b'), x -> x || id), left(id, 1))",
    "transform(data:items::array<variant>, x -> named_struct('id', id, 'sku', x:sku::string))[0].sku",
    "filter(filter(split(id, ','), x -> x <> id), x -> length(x) < 5)[0]",
    "id RLIKE 'a.*b' AND id NOT LIKE '%a%b' AND regexp_replace(data:name::string, '.*-', '') = ''",
    "filter(split(id, ','), x -> x RLIKE '.*1') = array('1')",
    "concat_ws('-', id, source, type) || format_string('%2$s %1$05d', 7, id)",
    "id RLIKE '^(25[0-5]|1?\\\\d?\\\\d)[.](25[0-5]|1?\\\\d?\\\\d)$' OR id RLIKE '^(?i)[a-z]{2,3}-?\\\\d{1,4}$'",
]


@pytest.mark.parametrize("text", [*SHELL, *JAVA, *BEYOND, *EXPENSIVE, *OTHER_DIGITS], ids=lambda text: text[:60])
def test_an_attack_is_refused_when_the_file_is_read(tmp_path: Path, text: str) -> None:
    """Both as a condition and as a transform: with the file, the line, the place in the expression, and a remedy."""
    target = {"type": "file", "path": "/x", "transform": {"form": "SQL", "value": text}}
    rule = {"bus": "b", "pattern": {}, "where": text, "targets": {"t": target}}
    (tmp_path / "r.yaml").write_text(
        json.dumps({"buses": {"b": {"source": {"type": "embedded"}}}, "rules": {"r": rule}})
    )

    with pytest.raises(RuleFileError) as caught:
        load_rules(tmp_path)

    assert len(caught.value.errors) == 2
    for error in map(str, caught.value.errors):
        assert error.startswith(f"{tmp_path / 'r.yaml'}:1:")
        assert ", line " in error or "the maximum is 10,000" in error
        assert error.endswith((".", "?"))


@pytest.mark.parametrize("text", ALLOWED)
def test_useful_expressions_are_allowed(text: str) -> None:
    """The list is no refusal of everything: these expressions pass."""
    assert expression_problem(text) is None


@pytest.mark.parametrize("text", ALLOWED)
def test_the_sent_expression_has_none_of_the_users_spelling(text: str) -> None:
    """Whatever Spark could take for a comment, a variable, a parameter or a statement is removed before sending."""
    sent = parse_sql(text).to_sql()

    assert not any(mark in sent for mark in ("--", "/*", "${", "{", "?", "@", ";", "\\'", '"', "\n"))
    assert sent.isascii()
    if "raise_error(" not in sent:  # the limit of a text that a pattern is applied to is no part of the language
        assert parse_sql(sent).to_sql() == sent


def test_spark_reads_what_is_sent_as_it_reads_what_was_written(spark_server: SparkConnectServer) -> None:
    """Same value and same type for every expression: the order of operators and the escapes are Spark's own."""
    spark = connect(spark_server.url, "sent-and-written")
    for name, value in CONFS.items():
        spark.conf.set(name, value)
    data = json.dumps({"n": 3, "a b": "x", "größe": 4, "items": [{"price": 1.25, "sku": "A"}, {"sku": "B"}]})
    columns = ", ".join(f"CAST('{name}' AS STRING) AS {name}" for name in ATTRIBUTES if name not in ("id", "time"))
    event = spark.range(1).selectExpr(
        "'1' AS id",
        "'2026-01-02T03:04:05Z' AS time",
        *columns.split(", "),
        "map('fleet', '7') AS extensions",
        "CAST(NULL AS STRING) AS data_base64",
        f"parse_json('{data}') AS data",
        f"500 AS {EVENT_SIZE}",
    )
    found = {text: (_outcome(event, text), _outcome(event, parse_sql(text).to_sql())) for text in ALLOWED}
    differing = {text: both for text, both in found.items() if both[0] != both[1]}
    failing = [text for text, (written, _) in found.items() if written.startswith("[")]

    assert differing == {}
    assert len(failing) < len(ALLOWED) / 10, failing  # types that do not go together say little about the order


def _outcome(event: DataFrame, text: str) -> str:
    """Return the value and the type of an expression, or the class of the error that Spark responds with."""
    try:
        asked = event.selectExpr(f"(\n{text}\n) AS value")
        return f"{asked.schema.fields[0].dataType}: {asked.collect()[0][0]}"
    except PySparkException as error:
        return str(error).partition("]")[0] + "]"


def test_every_allowed_function_is_one_of_sparks(spark_server: SparkConnectServer) -> None:
    """No name on the list can be defined in a session."""
    spark = connect(spark_server.url, "functions")
    known = {row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}

    assert set(FUNCTIONS) - known == {"timestampadd", "timestampdiff"}  # words of its grammar


def test_spark_would_have_run_the_shell(spark_server: SparkConnectServer, tmp_path: Path) -> None:
    """The attacks are real: this Spark runs a program for one, and puts its environment into a text for another."""
    spark = connect(spark_server.url, "attack")
    made = tmp_path / "made"

    spark.range(1).selectExpr(f"(MAP 1 USING 'touch {made}' AS (x STRING)) = '1'").collect()
    (row,) = spark.range(1).selectExpr("'${env:PATH}' AS path").collect()

    assert made.exists()
    assert row["path"] == os.environ["PATH"]


def test_an_unchecked_rule_set_runs_nothing(spark_server: SparkConnectServer, tmp_path: Path) -> None:
    """Frozen by an older version or by hand: its rule is on hold with the place, and Spark sees none of its SQL."""
    made = tmp_path / "made"
    attack = f"(MAP 1 USING 'touch {made}' AS (x STRING)) = '1'"
    target = FileFields(name="t", path="/x", transform=Transform(form="SQL", value=attack))
    rules = [
        Rule(name="r", bus="b", runner="b", pattern={}, where=attack, targets={}),
        Rule(name="r", bus="b", runner="b", pattern={}, targets={"t": target}),
    ]
    store = open_store(f"file://{tmp_path}/store")
    job = RouteJob(
        batch_id="019cfe00-0000-7000-8000-000000000000",
        runner="b",
        bus="b",
        rule_set="",
        planned_at=datetime(2026, 3, 1, tzinfo=UTC),
        store_uri=store.uri,
        attempt="try",
        event_max_size=1 << 20,
        piece_max_deliveries=10,
        piece_max_bytes=1 << 20,
    )
    share = RuleShare("slice", "r", (("file", "0"),), 1.0)

    held = [with_sql_results(connect(spark_server.url, "held"), store, job, rule, share).hold for rule in rules]

    assert all("MAP begins a query or a statement, line 1, column 2" in why for why in held)
    assert not made.exists()
