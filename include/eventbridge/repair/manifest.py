"""Compares the manifest of a committed batch with its files, and rewrites it; used by audit and repair."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from eventbridge.errors import ReconciliationError, StoreError, StoreFileDamaged, StoreFileMissing
from eventbridge.event.ids import Fingerprint
from eventbridge.model.batch import Batch
from eventbridge.pipeline.commit.stage import as_text, manifest_of
from eventbridge.policy.reconciliation import Reconciliation
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout
from eventbridge.store.formats import require_known_format

_COUNTS = ("range_total", "gaps", "read", "malformed", "duplicate", "valid", "rows_in", "unroutable")
_PRINTS = ("matched", "delivered", "pending", "dead")


def manifest_differences(runtime: Runtime, batch: Batch, reconciliation: Reconciliation) -> Iterator[str]:
    """Yield how the manifest of a committed batch is wrong: it is lost, damaged, or differs from its files.

    Raises NewerFormatError for a manifest of a newer version, which may have content unknown to this version.
    """
    path = layout.manifest(batch.planned_at, batch.batch_id)
    try:
        written = _written(runtime, path)
    except StoreError as error:
        yield str(error)
        return
    require_known_format(path, written.get("format"))
    now = json.loads(json.dumps(manifest_of(runtime, batch, reconciliation)))
    written.setdefault("format", now["format"])  # the first manifests had no format
    for name in sorted(set(written) | set(now)):
        if written.get(name) != now.get(name):
            yield f"{path} has {name} {written.get(name)!r}, its files {now.get(name)!r}"


def is_manifest_readable(runtime: Runtime, batch: Batch) -> bool:
    """Return whether the manifest of a committed batch exists and can be read, whatever its content."""
    try:
        _written(runtime, layout.manifest(batch.planned_at, batch.batch_id))
    except (StoreFileMissing, StoreFileDamaged):
        return False
    return True


def reconciliation_of_manifest(runtime: Runtime, batch: Batch) -> Reconciliation:
    """Return the reconciliation of a batch from its manifest, after retention removed its files.

    Raises StoreError if the manifest cannot be read, ReconciliationError if it is damaged or has other ranges than the
    ledger, NewerFormatError for a manifest of a newer version.
    """
    path = layout.manifest(batch.planned_at, batch.batch_id)
    try:
        written = dict(json.loads(runtime.store.get(path)))
        require_known_format(path, written.get("format"))
        counts: dict[str, Any] = {name: int(written["counts"][name]) for name in _COUNTS}
        counts["tombstone"] = int(written["counts"].get("tombstone", 0))
        prints = {
            name: {key: Fingerprint(*each) for key, each in written["fingerprints"][name].items()} for name in _PRINTS
        }
        ranges = [[*part.partition, part.start, part.end] for part in runtime.ledger.ranges(batch.batch_id)]
        if (written["batch_id"], written["ranges"]) != (batch.batch_id, ranges):
            raise ReconciliationError(
                f"{path} is of batch {written['batch_id']}, ranges {written['ranges']}, not {ranges}"
            )
    except (ValueError, KeyError, TypeError):
        raise ReconciliationError(f"{path} is damaged. Put it back from a copy of the store") from None
    return Reconciliation(
        **counts,
        malformed_records=counts["malformed"],
        unroutable_records=counts["unroutable"],
        matched=prints["matched"],
        recorded=prints["matched"],
        delivered=prints["delivered"],
        pending=prints["pending"],
        pending_by_settlement=prints["pending"],
        dead=prints["dead"],
        dead_by_settlement=prints["dead"],
    )


def write_manifest_again(runtime: Runtime, batch: Batch, reconciliation: Reconciliation) -> None:
    """Rewrite the manifest of a committed batch from its files, which must be reconciled."""
    runtime.store.put(
        layout.manifest(batch.planned_at, batch.batch_id), as_text(manifest_of(runtime, batch, reconciliation))
    )


def _written(runtime: Runtime, path: str) -> dict[str, Any]:
    try:
        written = json.loads(runtime.store.get(path))
    except ValueError:
        written = None
    if not isinstance(written, dict):
        raise StoreFileDamaged(f"{path} is damaged: it is not a JSON object")
    return written
