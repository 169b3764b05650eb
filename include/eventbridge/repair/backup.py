"""Checks whether a ledger and a store belong together, for example after both were restored from backups."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import Final, Literal

from eventbridge.errors import NotFoundError
from eventbridge.model.batch import Batch
from eventbridge.processes import check_cancelled
from eventbridge.progress import Progress, unreported
from eventbridge.runtime.identity import ledger_of_runner
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout

BackupStatus = Literal["together", "ledger_older", "store_older", "apart"]

#: The number of examples in a check.
_EXAMPLES: Final = 10


@dataclass(frozen=True)
class BackupCheck:
    """The differences between a ledger and a store, as numbers and up to 10 examples, the newest first.

    `status` says whether they belong together, or else which of them is older.
    `unknown_manifests` are of batches that the ledger does not have. `missing_manifests` are of batches that the ledger
    has committed. `missing_files` are named by pending deliveries and deferred matches, which cannot be retried without
    them. `other_ledgers` has the ids of ledgers that the store names for its runners, apart from this one.
    """

    status: BackupStatus
    ledger: str
    store: str
    batches: int
    newest_batch: datetime | None
    unknown_manifests: int
    missing_manifests: int
    missing_files: int
    other_ledgers: tuple[str, ...]
    examples: tuple[str, ...]


def check_backup(runtime: Runtime, progress: Progress = unreported) -> BackupCheck:
    """Compare the ledger with the store; changes nothing. A batch that is committed meanwhile is no difference.

    It lists the manifests, and reads the lists of compacted files, but no other file. Raises StoreError and
    LedgerError.
    """
    # Listed first, because the row of a batch is written before its manifest.
    manifests = set(runtime.store.list("manifests/"))
    batches = runtime.ledger.batches.find(limit=None)
    known = {batch.batch_id for batch in batches}
    unknown = sorted((path for path in manifests if PurePosixPath(path).stem not in known), reverse=True)
    unknown = [path for path in unknown if runtime.store.exists(path)]  # retention may have removed both
    missing = []
    committed = [batch for batch in batches if batch.state == "committed" and batch.kept != "nothing"]
    for number, batch in enumerate(committed):
        check_cancelled()
        progress(number, len(committed))
        if _lacks_manifest(runtime, batch, manifests):
            missing.append(layout.manifest(batch.planned_at, batch.batch_id))
    files = sorted(path for path in runtime.ledger.retention.files_in_use() if not runtime.store.exists(path))
    owners = {ledger_of_runner(runtime, PurePosixPath(path).stem) for path in runtime.store.list("runners/")}
    others = owners - {runtime.ledger.id}
    return BackupCheck(
        status=_status(bool(unknown), bool(missing or files), bool(others)),
        ledger=runtime.ledger.id,
        store=runtime.store.uri,
        batches=len(committed),
        newest_batch=max((batch.planned_at for batch in committed), default=None),
        unknown_manifests=len(unknown),
        missing_manifests=len(missing),
        missing_files=len(files),
        other_ledgers=tuple(sorted(others)),
        examples=tuple([*unknown, *sorted(missing, reverse=True), *files][:_EXAMPLES]),
    )


def _status(lacks_batches: bool, lacks_files: bool, is_other: bool) -> BackupStatus:
    if is_other or (lacks_batches and lacks_files):
        return "apart"
    if lacks_batches:
        return "ledger_older"
    return "store_older" if lacks_files else "together"


def _lacks_manifest(runtime: Runtime, batch: Batch, manifests: set[str]) -> bool:
    path = layout.manifest(batch.planned_at, batch.batch_id)
    if path in manifests or runtime.store.exists(path):
        return False
    try:
        return runtime.ledger.batches.get(batch.batch_id).kept != "nothing"
    except NotFoundError:  # retention has removed it
        return False
