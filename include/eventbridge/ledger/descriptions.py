"""Details of the recorded files of a batch, decoded once: a stage requests the same details many times."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row

from eventbridge.model.batch import BatchFile
from eventbridge.model.file_detail import decode_detail


class Descriptions:
    """Keeps the decoded files of the most recently requested batch only; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batch_id = ""
        self._files: dict[tuple[str, str], tuple[str, BatchFile]] = {}

    def decoded(self, batch_id: str, rows: Sequence[Row[Any]]) -> list[BatchFile]:
        """Return the files of rows of table `batch_file`, whose `detail` is still text, in their order."""
        with self._lock:
            if batch_id != self._batch_id:
                self._batch_id, self._files = batch_id, {}
            return [self._decoded(row) for row in rows]

    def _decoded(self, row: Row[Any]) -> BatchFile:
        name = (row.kind, row.key)
        known = self._files.get(name)
        # A file may have been deleted and another one recorded under its key.
        if known is None or known[0] != row.detail or (known[1].path, known[1].rows) != (row.path, row.rows):
            file = BatchFile(**dict(row._mapping) | {"detail": decode_detail(row.detail)})
            known = self._files[name] = (row.detail, file)
        return known[1]
