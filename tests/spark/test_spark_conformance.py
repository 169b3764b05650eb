"""Every conformance case on Spark, as one job: all patterns on the events of all cases."""

from __future__ import annotations

import pyarrow as pa
from conformance.test_kernel_conformance import all_patterns_and_texts, results_of_cases, results_of_reference

from eventbridge.spark import match_frame
from eventbridge.spark.server import SparkConnectServer
from eventbridge.spark.session import connect


def test_spark_gives_the_results_of_all_cases(spark_server: SparkConnectServer) -> None:
    """Each event matches its own pattern as its case says, and the other patterns as the reference matcher says."""
    patterns, texts = all_patterns_and_texts()
    rules = {str(rule): pattern for rule, pattern in enumerate(patterns)}
    # binary: some cases are no UTF-8
    table = pa.table({"number": pa.array(range(len(texts)), pa.int64()), "event": pa.array(texts, pa.binary())})
    frame = connect(spark_server.url, "conformance").createDataFrame(table).repartition(2)

    rows = match_frame(frame, rules).drop("event").orderBy("number").collect()
    found = [None if row["malformed"] else sorted(map(int, row["matched"])) for row in rows]

    assert len(rules) > 100
    assert [
        (rule, None if matched is None else rule in matched)
        for (rule, _), matched in zip(results_of_cases(), found, strict=True)
    ] == results_of_cases()
    assert found == results_of_reference(patterns, texts)
