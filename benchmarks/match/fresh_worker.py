"""A Spark worker from its fork on, and its daemon: `python -m benchmarks.match.fresh_worker JOB_TASKS`.

The argument is JSON; prints what each took as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time

import pyarrow as pa

from eventbridge.routing.job import SliceResult
from eventbridge.routing.task import route_task
from eventbridge.spark.frame import route_numbers
from eventbridge.spark.worker_daemon import load


def main() -> int:
    """Fork a worker that routes the first slice of a job; return its exit code, 1 if it delivered nothing."""
    (asked,) = sys.argv[1:]
    load()
    loaded = time.process_time()
    begun = time.monotonic()
    child = os.fork()
    if child == 0:
        os._exit(_route(asked))
    _, status, usage = os.wait4(child, 0)
    seconds = time.monotonic() - begun
    print(json.dumps({"forked_from": loaded, "cpu_seconds": usage.ru_utime + usage.ru_stime, "seconds": seconds}))  # noqa: T201
    return os.waitstatus_to_exitcode(status)


def _route(asked: str) -> int:
    first = pa.RecordBatch.from_pydict({"id": [0]})
    (response,) = route_numbers(route_task, asked.encode(), None, iter([first]))
    return 0 if SliceResult.from_json(response.column("result")[0].as_py().encode()).rows else 1


if __name__ == "__main__":
    sys.exit(main())
