"""Runs the daemon from which Spark forks Python workers that have route's modules loaded
(`spark.python.daemon.module`).

A cold worker spends three seconds of CPU time on loading pandas, Numba and compiled code before it routes its first
event. A worker forked from this daemon is ready immediately, and shares that memory with the others. There is one
daemon per executor, which Spark starts with `python -m eventbridge.spark.worker_daemon pyspark.worker`.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def load() -> None:
    """Load and compile the code of a route worker, and exclude it from garbage collection so that pages stay shared.

    The threads of Arrow and OpenBLAS end at a fork; handlers of these libraries restart them in the child. Raises
    EventBridgeError if this installation cannot route.
    """
    import numpy
    import pandas  # noqa: F401 - pyarrow would import it with its first array
    import pyspark.worker  # noqa: F401

    # Python reseeds its own generator in each child, but NumPy's would yield the same numbers in every worker.
    os.register_at_fork(after_in_child=numpy.random.seed)

    import eventbridge.spark.frame
    import eventbridge.spark.land  # noqa: F401
    from eventbridge.routing.warm_up import compile_ahead
    from eventbridge.spark.inherited_programs import leave_programs

    compile_ahead()
    leave_programs()
    gc.collect()
    gc.freeze()


def main() -> None:
    """Fork a worker whenever Spark requests one, until Spark closes the pipe. It never returns."""
    from pyspark import daemon

    for name in ("SPARK_CONNECT_AUTHENTICATE_TOKEN", "_SPARK_AUTH_SECRET"):
        os.environ.pop(name, None)  # inherited from Spark's Java process; workers do not need them
    with _stdout_to_stderr():
        try:
            load()
        except Exception as error:
            # Jobs of other users may also run here. Route reports the error again, where its user sees it.
            print(f"eventbridge: {type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201 - Spark's log
    daemon.manager()


@contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Redirect all output, including that of C libraries, to stderr, because Spark reads the daemon's port from
    stdout."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


if __name__ == "__main__":
    main()
