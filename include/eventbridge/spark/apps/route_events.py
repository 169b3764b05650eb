"""Routes the slices of one job file, as an application for `spark-submit` if there is no Spark Connect server.

    spark-submit route_events.py STORE_URI JOB_FILE

STORE_URI is the object store; JOB_FILE is the path of the job file that route wrote into it. The workers write their
responses to the store. The program exits with 0 if every slice was routed. `eventbridge` must be installed where
workers run.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from eventbridge.spark.submit import run_job


def main(arguments: list[str]) -> int:
    """Run the job that the two arguments name, and return the exit code."""
    if len(arguments) != 2:
        sys.stderr.write("usage: route_events.py STORE_URI JOB_FILE\n")
        return 2
    spark = SparkSession.builder.appName("eventbridge route").getOrCreate()
    try:
        run_job(spark, *arguments)
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
