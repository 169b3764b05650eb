"""What Spark forks its Python workers from, with all in it that route needs: conf `spark.python.daemon.module`.

A worker that begins with nothing reads pandas, Numba and compiled code for three seconds of CPU time before it routes
its first event; one that is forked from here begins at once, and shares that memory with the others. What Spark calls
a daemon is one process of an executor; `python -m eventbridge.spark.worker_daemon pyspark.worker` is how it starts it.
"""

from __future__ import annotations

import gc
import sys
from contextlib import redirect_stdout

from eventbridge.errors import EventBridgeError


def load() -> None:
    """Load and compile what a worker of route needs, and keep collectors away from the pages that workers share.

    Threads that it leaves (of Arrow and OpenBLAS) end at a fork and come back in the child by their libraries' own
    handlers. Raises EventBridgeError if this installation cannot route.
    """
    import pandas  # noqa: F401 - pyarrow takes it along with its first array
    import pyspark.worker  # noqa: F401

    import eventbridge.spark.frame  # noqa: F401
    from eventbridge.stages.compile_ahead import compile_ahead

    compile_ahead()
    gc.collect()
    gc.freeze()


def main() -> None:
    """Fork a worker whenever Spark asks for one, until it asks no more; never returns."""
    from pyspark import daemon

    with redirect_stdout(sys.stderr):  # Spark reads its port from there
        try:
            load()
        except EventBridgeError as error:
            # Others' jobs may be at home here too. Route says it again, where its user sees it.
            print(f"eventbridge: {error}", file=sys.stderr)  # noqa: T201 - Spark's log
    daemon.manager()


if __name__ == "__main__":
    main()
