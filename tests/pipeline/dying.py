"""Runs a push in a separate process that ends at its n-th call of certain functions, as if it were killed."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from eventbridge import fault_points
from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.delivery.push import push
from eventbridge.runtime.open import open_runtime

#: The calls that send, that receive responses and that record them. `tests/faults` dies at all other calls too.
POINTS = frozenset({"target.send", "target.responded", "store.put", "store.put.done", "ledger.commit.done"})

#: The exit codes of a process that ended at the given point, and of one that finished.
DIED, DONE = 77, 0
_SECONDS = 120.0

_processes = multiprocessing.get_context("forkserver")  # no thread is forked, and slow imports happen once
_processes.set_forkserver_preload(
    ["eventbridge.delivery.push", "pandas", "pyarrow.parquet", "sqlalchemy.dialects.sqlite"]
)


def push_that_dies(folder: Path, environ: Mapping[str, str], batch_id: str, at: int) -> int:
    """Push the first chunk of a batch, ending the process at the `at`-th of `POINTS`; return its exit code."""
    process = _processes.Process(target=_push, args=(folder, dict(environ), batch_id, at), daemon=True)
    process.start()
    process.join(_SECONDS)
    code = process.exitcode
    process.close()
    assert code is not None, "the push does not end"
    return code


def _push(folder: Path, environ: dict[str, str], batch_id: str, at: int) -> None:
    mapping = environ | {
        "EVENTBRIDGE_HOME": str(folder),
        "EVENTBRIDGE_FILE_TARGET_FOLDERS": str(folder),
        "EVENTBRIDGE_RULES_FOLDER": str(folder / "rules"),
    }
    settings = Settings.from_mapping(mapping)
    runtime = open_runtime(settings, connections_from_environment(mapping), lambda: datetime.now(UTC))
    reached = 0

    def hook(point: str) -> None:
        nonlocal reached
        reached += point in POINTS
        if reached >= at:
            os._exit(DIED)

    fault_points.install(hook)
    push(runtime, batch_id, 0)
    runtime.close()
