"""What Spark forks its Python workers from, with all in it that route needs: conf `spark.python.daemon.module`.

A worker that begins with nothing reads pandas, Numba and compiled code for three seconds of CPU time before it routes
its first event; one that is forked from here begins at once, and shares that memory with the others. What Spark calls
a daemon is one process of an executor; `python -m eventbridge.spark.worker_daemon pyspark.worker` is how it starts it.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def load() -> None:
    """Load and compile what a worker of route needs, and keep collectors away from the pages that workers share.

    Threads that it leaves (of Arrow and OpenBLAS) end at a fork and come back in the child by their libraries' own
    handlers. Raises whatever there is to say if this installation cannot route.
    """
    import numpy
    import pandas  # noqa: F401 - pyarrow takes it along with its first array
    import pyspark.worker  # noqa: F401

    # Python's own dice are thrown again in each child; NumPy's would fall alike in every worker, in others' jobs too.
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
    """Fork a worker whenever Spark asks for one, until it asks no more; never returns."""
    from pyspark import daemon

    for name in ("SPARK_CONNECT_AUTHENTICATE_TOKEN", "_SPARK_AUTH_SECRET"):
        os.environ.pop(name, None)  # Spark's Java gave them along, and workers have no use for them
    with _stdout_to_stderr():
        try:
            load()
        except Exception as error:
            # Others' jobs may be at home here too. Route says it again, where its user sees it.
            print(f"eventbridge: {type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201 - Spark's log
    daemon.manager()


@contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Keep what anybody prints, C libraries too, out of stdout: Spark reads four bytes there, the daemon's port."""
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
