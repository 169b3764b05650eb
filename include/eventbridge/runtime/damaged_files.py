"""The error for a file of a batch's reconciliation that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from eventbridge.errors import ReconciliationError, StoreFileDamaged, StoreFileMissing


@contextmanager
def naming_the_repair(batch_id: str, what: str) -> Iterator[None]:
    """Turn an unreadable file into ReconciliationError, which names the batch and the command that repairs it."""
    try:
        yield
    except (StoreFileMissing, StoreFileDamaged) as error:
        raise ReconciliationError(
            f"batch {batch_id} cannot be {what}: {str(error).rstrip('.')}. "
            f"If there is no copy, `eventbridge batch repair {batch_id} --dry-run` shows what can be made again"
        ) from error
