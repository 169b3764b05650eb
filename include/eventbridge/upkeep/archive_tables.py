"""Registers the Parquet files of the archive in an Iceberg catalog, without copying a byte.

The tables have the files that the ledger records; a repeated call adds new files, and drops those that retention has
removed. One table has the events of one bus, because the files do not name the bus.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError, ValidationException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, TableProperties, Transaction

from eventbridge.config.redaction import veiled
from eventbridge.errors import EventBridgeError, InfrastructureError, UserError
from eventbridge.model.batch import FileKind
from eventbridge.model.storage import Kept
from eventbridge.runtime.batch_files import newest_files
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import schemas
from eventbridge.store.compacted import CompactedStore
from eventbridge.targets.iceberg.catalog import catalog_opener, secrets_of

#: The maximum number of files that one commit adds.
_FILES_IN_COMMIT: Final = 1_000
_SECONDS: Final = 30.0
_ROUNDS: Final = 5
_OURS: Final = "eventbridge.archive"
#: gc.enabled keeps other engines from deleting files of the archive when they expire snapshots or drop a table.
_PROPERTIES: Final = {
    _OURS: "true",
    "gc.enabled": "false",
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
}
#: The tables beside those of events: the kind of their files, what a batch must have kept of them, and their columns.
_TABLES: Final[Mapping[str, tuple[FileKind, Kept, pa.Schema]]] = {
    "deliveries": ("delivery", "all", schemas.DELIVERY),
    "settlements": ("settlement", "all", schemas.SETTLEMENT),
}
_BUS: Final = re.compile(r"buffer/bus=([^/]+)/")


@dataclass(frozen=True)
class RegisteredTable:
    """A table of the archive in a catalog: its number of files, and how many were added and removed."""

    table: str
    files: int
    added: int
    removed: int


def register_archive(runtime: Runtime, connection_id: str, namespace: str) -> list[RegisteredTable]:
    """Bring the tables of the archive in the catalog of a connection up to date, and return them.

    The namespace must exist; missing tables are created. Raises UserError, and InfrastructureError if the catalog or a
    file cannot be reached.
    """
    connection = runtime.connections(connection_id)
    opener = catalog_opener(connection, "the registration of tables", runtime.settings.target_locations, _SECONDS)
    try:
        with closing(opener()) as catalog:
            archive = {f"{namespace}.{name}": (schema, paths) for name, schema, paths in _archive(runtime)}
            for name in _tables_of_removed_events(catalog, namespace, archive):
                archive[name] = schemas.BUFFER, set()
            return [_update(catalog, name, *each, runtime.store.uri) for name, each in archive.items()]
    except EventBridgeError:
        raise
    except NoSuchNamespaceError:
        where = f"the catalog of {connection_id!r}"
        raise UserError(f"There is no namespace {namespace!r} in {where}. Create it.") from None
    except Exception as error:  # pyiceberg raises what its catalogs, files and clients raise
        text = " ".join(str(error).split())[:500].encode("utf-8", "replace")
        shown = veiled(text, secrets_of(connection)).decode("utf-8", "replace")
        raise InfrastructureError(f"The catalog of connection {connection_id!r}: {shown}") from error


def _archive(runtime: Runtime) -> Iterator[tuple[str, pa.Schema, set[str]]]:
    """Yield the name of each table, its columns, and the paths of its files."""
    stored = CompactedStore(runtime.store)
    of_bus: dict[str, list[str]] = defaultdict(list)
    for each in newest_files(runtime, "buffer", "archive"):
        if found := _BUS.match(each.path):
            of_bus[found[1]].append(each.path)
    names: dict[str, str] = {}
    for bus, paths in sorted(of_bus.items()):
        name = f"events_{re.sub(r'[^A-Za-z0-9_]', '_', bus)}"
        if name in names:
            raise UserError(f"The buses {names[name]!r} and {bus!r} would both have the table {name}. Rename one.")
        names[name] = bus
        yield name, schemas.BUFFER, stored.stored_paths(paths)
    for name, (kind, kept, schema) in _TABLES.items():
        yield name, schema, stored.stored_paths(each.path for each in newest_files(runtime, kind, kept))


def _tables_of_removed_events(catalog: Catalog, namespace: str, archive: Collection[str]) -> list[str]:
    """Return the tables of events of which no file is left."""
    names = [".".join(each) for each in catalog.list_tables(namespace) if each[-1].startswith("events_")]
    others = [name for name in names if name not in archive]
    return [name for name in others if catalog.load_table(name).properties.get(_OURS) == "true"]


def _update(catalog: Catalog, name: str, schema: pa.Schema, paths: Collection[str], store: str) -> RegisteredTable:
    """Let a table have exactly the files with these paths in the store, beside files that are elsewhere."""
    base = _base(store)
    wanted = {f"{base}{path}" for path in paths}
    added = removed = 0
    for _ in range(_ROUNDS):
        table = _table(catalog, name, schema)
        present = {task.file.file_path: task.file for task in table.scan().plan_files()}
        gone = [file for path, file in present.items() if path.startswith(base) and path not in wanted]
        new = sorted(wanted - present.keys())
        try:
            for begin in range(0, max(1, len(new)), _FILES_IN_COMMIT):
                part = new[begin : begin + _FILES_IN_COMMIT]
                _commit(table, part, [] if begin else gone)
                added, removed = added + len(part), removed + (0 if begin else len(gone))
        except (CommitFailedException, ValidationException):
            continue  # another process has changed the table
        return RegisteredTable(name, len(present) + len(new) - len(gone), added, removed)
    raise InfrastructureError(f"Other processes changed the table {name} each time. Run this again.")


def _base(store: str) -> str:
    """Return what the URIs of all files of a store begin with, as Iceberg writes them."""
    scheme, _, place = store.partition("://")
    return f"{scheme}://{unquote(place) if scheme == 'file' else place.rpartition('@')[2]}/"


def _table(catalog: Catalog, name: str, schema: pa.Schema) -> Table:
    try:
        table = catalog.load_table(name)
    except NoSuchTableError:
        return catalog.create_table(name, schema, properties=dict(_PROPERTIES))
    if table.properties.get(_OURS) != "true":
        raise UserError(f"The table {name} exists, and is not one of the archive. Use another --namespace.")
    return table


def _commit(table: Table, new: list[str], gone: list[DataFile]) -> None:
    if not new and not gone:
        return
    with _OneTry(table) as transaction:
        if gone:
            with transaction.update_snapshot().overwrite() as drop:
                for file in gone:
                    drop.delete_data_file(file)
        if new:
            transaction.add_files(new, check_duplicate_files=False)


class _OneTry(Transaction):
    """A transaction that fails on a conflict, because another process may have added the same files."""

    def _rebuild_snapshot_updates(self) -> None:
        raise CommitFailedException("another process has changed the table")
