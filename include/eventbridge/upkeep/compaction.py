"""Compacts the days that have ended: copies their small files into larger ones, which are read under the old paths.

A file is never changed. A list is written first, of where the bytes of each file are going to be. Then the bytes are
copied, with those of other files of the same columns, into a larger file that is itself Parquet; manifests are copied
one after another. Only then the files are deleted. If a run dies before that, the next one copies them again.

A day is compacted once, after its orphaned files were swept: no stage writes to it any more, except a repair. A repair
writes a file again under its path, where it takes precedence over the copy; the files of a repaired batch stay. So do
the files that pending rows and deferred matches name, because a retry is going to read them.
"""

from __future__ import annotations

import hashlib
import logging
from collections import defaultdict
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from eventbridge.errors import NotFoundError, StoreFileDamaged, StoreFileMissing
from eventbridge.model.batch import Batch
from eventbridge.model.storage import STEPS, Kept, is_kept
from eventbridge.runtime.time_range import day_of
from eventbridge.store import layout
from eventbridge.store.compacted import CompactedFile, read_list, write_list
from eventbridge.store.parquet_footer import MAGIC, Footer
from eventbridge.store.protocol import Store
from eventbridge.upkeep.run import RetentionRun, Retentions

log = logging.getLogger(__name__)

#: Files of at least this size are left as they are.
MAX_BYTES: Final = 32 << 20
#: A larger file is written once it has this size, or this number of files.
_TARGET_BYTES: Final = 64 << 20
_TARGET_FILES: Final = 2_000
_DAY: Final = timedelta(days=1)
_EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MANIFESTS: Final = "manifests/"
#: The records of a batch whose files are in a topmost folder.
_KEPT_IN: Final[dict[str, Kept]] = {
    "buffer": "archive",
    "deliveries": "all",
    "outcomes": "all",
    "settlements": "all",
    "dead_letters": "dead_letters",
    "manifests": "manifest",
}


def compact_days(run: RetentionRun) -> None:
    """Compact each day that was swept for orphaned files and is not yet compacted; a dry run changes nothing."""
    if run.dry_run:
        return
    retention = run.runtime.ledger.retention
    swept = retention.get_swept_through("lost")
    day = day_of(retention.get_swept_through("compacted") or _EARLIEST)
    while swept is not None and not run.is_over():
        first = retention.first_batch_at(day)
        if first is None or day_of(first) >= day_of(swept):
            return
        day = day_of(first)
        if retention.first_batch_at(day + _DAY) is None:
            return  # the newest manifests stay where they are, because they reveal a lost ledger
        if not retention.begin_compaction(day + _DAY):
            log.warning(
                "no day is compacted, because an erasure has begun and not ended. If its process died, run the same "
                "`eventbridge erase` again"
            )
            return
        if not _Compaction(run, day).is_done():
            return
        day += _DAY
        retention.move_sweep("compacted", day)
        run.progressed()


class _Compaction:
    """Compacts one day, folder by folder."""

    def __init__(self, run: RetentionRun, day: datetime) -> None:
        self._run = run
        self._store = run.runtime.store
        self._day = day
        self._in_use = run.runtime.ledger.retention.files_in_use()
        self._repairs = layout.repairs_of_day(day)

    def is_done(self) -> bool:
        """Compact the day; return False if the time of the run ended before."""
        groups = self._run.runtime.ledger.retention.groups
        buses = {group.bus for kept in STEPS for group in groups(kept)} - {""}
        for prefix in [*layout.folders_of_day(self._day, sorted(buses)), layout.manifests_of_day(self._day)]:
            by_schema: dict[bytes, _Copy] = {}
            for path in self._movable(self._store.list(prefix)):
                self._add(by_schema, prefix.rstrip("/"), path)
                if sum(copy.size for copy in by_schema.values()) >= _TARGET_BYTES:
                    self._finish(by_schema)
                    if self._run.is_over():
                        return False
            self._finish(by_schema)
            if self._run.is_over():
                return False
        return True

    def _movable(self, paths: list[str]) -> Iterator[str]:
        """Yield the files of committed batches that no retry is going to read."""
        ledger = self._run.runtime.ledger
        of_batch: dict[str, list[str]] = defaultdict(list)
        for path in paths:
            if (batch_id := layout.batch_in_name(path)) is not None:
                of_batch[batch_id].append(path)
        for batch_id, files in of_batch.items():
            batch = self._batch(batch_id)
            if batch is None or batch.state != "committed" or batch.kept != batch.remaining:
                continue
            named = {path for _, path in ledger.files.paths(batch_id)} - self._in_use
            yield from (path for path in files if path in named or path.startswith(_MANIFESTS))

    def _batch(self, batch_id: str) -> Batch | None:
        try:
            return self._run.runtime.ledger.batches.get(batch_id)
        except NotFoundError:
            return None

    def _add(self, by_schema: dict[bytes, _Copy], folder: str, path: str) -> None:
        try:
            with self._store.open(path) as source:
                if source.size() >= MAX_BYTES:
                    return
                data = bytes(source.read())
            footer = None if path.startswith(_MANIFESTS) else Footer.parse(data, path)
        except StoreFileMissing:  # retention has removed it
            return
        except StoreFileDamaged as error:
            log.warning("a damaged file is not compacted: %s", error)
            return
        schema = b"" if footer is None else footer.schema
        copy = by_schema.get(schema)
        if copy is None:
            copy = by_schema[schema] = _Copy(folder, footer)
        copy.add(path, data, footer)
        if len(copy.paths) >= _TARGET_FILES:
            self._finish({schema: by_schema.pop(schema)})

    def _finish(self, by_schema: dict[bytes, _Copy]) -> None:
        """Write the list of the copies, then the copies, and delete the files."""
        copies = [copy for copy in by_schema.values() if len(copy.paths) > 1]
        by_schema.clear()
        if not copies:
            return
        places = [place for copy in copies for place in copy.places()]
        area, day = places[0].path.partition("/")[0], f"{self._day:%Y-%m-%d}"
        write_list(self._store, layout.compacted_list(day, area, _digest([each.path for each in places])), places)
        for copy in copies:
            copy.write(self._store)
        repaired = {layout.batch_in_name(path) for path in self._store.list(self._repairs)}
        copied = [each.path for each in places if layout.batch_in_name(each.path) not in repaired]
        self._store.delete_all(copied)
        self._run.done.compacted += len(copied)
        self._run.progressed()


class _Copy:
    """The bytes of several files for a larger one, which is Parquet if they are, with all their rows in this order."""

    def __init__(self, folder: str, footer: Footer | None) -> None:
        self._folder = folder
        self._footer = footer
        self._data = bytearray(b"" if footer is None else MAGIC)
        self._starts: list[tuple[str, int, int, int]] = []
        self._groups: list[bytes] = []
        self._rows = 0

    @property
    def size(self) -> int:
        """Return the number of bytes so far."""
        return len(self._data)

    @property
    def paths(self) -> list[str]:
        """Return the paths of the files, in order."""
        return [path for path, *_ in self._starts]

    def add(self, path: str, data: bytes, footer: Footer | None) -> None:
        """Append a file."""
        start = len(self._data)
        self._starts.append((path, start, len(data), self._rows))
        self._data += data
        if footer is not None:
            self._groups += footer.moved_groups(start)
            self._rows += footer.rows

    @property
    def path(self) -> str:
        """Return the path of the larger file: the same for the same files, which never change."""
        return layout.compacted(self._folder, _digest(self.paths), "json" if self._footer is None else "parquet")

    def places(self) -> list[CompactedFile]:
        """Return where the bytes of each file are in the larger file."""
        return [CompactedFile(old, self.path, start, size, row) for old, start, size, row in self._starts]

    def write(self, store: Store) -> None:
        """Write the larger file, unless an earlier run has."""
        footer = b"" if self._footer is None else self._footer.with_groups(self._rows, self._groups)
        store.create(self.path, bytes(self._data + footer))


def _digest(paths: list[str]) -> str:
    """Return a name that these paths determine."""
    return hashlib.sha256("\n".join(paths).encode()).hexdigest()[:32]


def remove_from_larger(store: Store, file: str, paths: Collection[str]) -> None:
    """Remove files from a larger file: copy its other files into a new one, and delete it.

    Afterwards the removed files have only their own paths. Raises StoreError.
    """
    day = str(layout.day_in_path(file.removeprefix(layout.COMPACTED)))
    area = file.removeprefix(layout.COMPACTED).partition("/")[0]
    listed = {
        each
        for path in store.list(layout.compacted_lists(day))
        if layout.area_of_list(path) == area
        for each in read_list(store, path)
        if each.file == file
    }
    data = store.get(file)
    copy: _Copy | None = None
    for each in sorted((each for each in listed if each.path not in paths), key=lambda each: each.start):
        part = data[each.start : each.start + each.size]
        footer = Footer.parse(part, each.path)
        copy = copy or _Copy(file.removeprefix(layout.COMPACTED).rpartition("/")[0], footer)
        copy.add(each.path, part, footer)
    if copy is not None:
        write_list(store, layout.compacted_list(day, area, _digest(copy.paths)), copy.places())
        copy.write(store)
    store.delete(file)


def prune_compacted(run: RetentionRun, retentions: Retentions) -> None:
    """Remove larger files whose batches have all lost these records, and lists that name no other file."""
    for path in run.runtime.store.list(layout.COMPACTED_LISTS):
        kept = _KEPT_IN[layout.area_of_list(path)]
        day = datetime.fromisoformat(f"{layout.day_of_list(path)}T00:00:00+00:00")
        if run.is_over():
            return
        if run.now - day >= retentions.shortest(kept):
            _prune_list(run, path, kept)


def _prune_list(run: RetentionRun, path: str, kept: Kept) -> None:
    batches: dict[str, set[str]] = defaultdict(set)
    for each in read_list(run.runtime.store, path):
        batches[each.file].add(str(layout.batch_in_name(each.path)))
    unneeded = [file for file, ids in batches.items() if not any(_has(run, each, kept) for each in ids)]
    run.remove([file for file in unneeded if run.runtime.store.exists(file)])
    if len(unneeded) == len(batches):
        run.remove([path])


def _has(run: RetentionRun, batch_id: str, kept: Kept) -> bool:
    try:
        return is_kept(run.runtime.ledger.batches.get(batch_id).remaining, kept)
    except NotFoundError:
        return False
