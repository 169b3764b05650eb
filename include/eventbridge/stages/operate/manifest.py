"""Compares the manifest of a committed batch with its files, and writes it again; asked by audit and repair."""

from __future__ import annotations

import json
from collections.abc import Iterator

from eventbridge.decision.balance import Books
from eventbridge.errors import StoreError
from eventbridge.model.batch import Batch
from eventbridge.stages.commit.stage import manifest_of
from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.store import layout
from eventbridge.store.formats import require_known_format


def manifest_differences(work: Runtime, batch: Batch, books: Books) -> Iterator[str]:
    """Yield what is wrong with the manifest of a committed batch: it is lost, damaged, or says other than its files.

    Raises NewerFormatError for one that a newer version wrote: it may say what this version cannot read.
    """
    path = layout.manifest(batch.planned_at, batch.batch_id)
    try:
        written = json.loads(work.store.get(path))
    except StoreError as error:
        yield str(error)
        return
    except ValueError:
        written = None
    if not isinstance(written, dict):
        yield f"{path} is damaged: it is not a JSON object"
        return
    require_known_format(path, written.get("format"))
    now = json.loads(json.dumps(manifest_of(work, batch, books)))
    written.setdefault("format", now["format"])  # one that names none was written before there were formats
    for name in sorted(set(written) | set(now)):
        if written.get(name) != now.get(name):
            yield f"{path} says of {name} {written.get(name)!r}, its files {now.get(name)!r}"


def write_manifest_again(work: Runtime, batch: Batch, books: Books) -> None:
    """Replace the manifest of a committed batch by what its files say; its books must balance."""
    text = json.dumps(manifest_of(work, batch, books), indent=1, sort_keys=True).encode()
    work.store.put(layout.manifest(batch.planned_at, batch.batch_id), text)
