"""Defines the interface of an object store, as the stages use it, and the rules for its paths."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from eventbridge.errors import StoreError, StoreFileDamaged, StoreFileMissing

__all__ = ["Store", "StoreError", "StoreFileDamaged", "StoreFileMissing", "check_path", "check_prefix", "missing"]


class Store(Protocol):
    """Immutable files by path; several threads and processes may use them at the same time.

    Paths are relative, with `/` between their parts. A file becomes visible only when it is complete, even if its
    writer dies. A write survives power loss once `put` or `create` has returned. Every method raises StoreError if it
    fails.
    """

    @property
    def uri(self) -> str:
        """Return the URI with which `open_store` opens this store."""

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        """Write a file; an existing one is replaced."""

    def create(self, path: str, data: bytes | pa.Buffer) -> bool:
        """Write a file unless it exists, and return whether it was written.

        Only one of several callers gets True. If the result is False, the file of the other caller is already durable.
        """

    def get(self, path: str) -> bytes:
        """Return the bytes of a file. Raises StoreFileMissing if there is none."""

    def open(self, path: str) -> pa.NativeFile:
        """Return a file for random-access reads; the caller closes it. Raises StoreFileMissing if there is none."""

    def exists(self, path: str) -> bool:
        """Return whether a file with this name exists."""

    def list(self, prefix: str, after: str = "") -> builtins.list[str]:
        """Return the paths of all files that begin with `prefix`, sorted by code point; `""` lists all.

        Only paths that sort after `after` are returned. The time grows with the number of files found, so a stage calls
        this at most once.
        """

    def size(self, prefix: str) -> int:
        """Return the total size, in bytes, of all files whose paths begin with `prefix` (`""`: of all files), as slowly
        as `list`."""

    def delete(self, path: str) -> None:
        """Remove a file if it exists."""

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove the files that exist, and folders that become empty, faster than by a call of `delete` for each.

        If it raises StoreError, some of the files may have been removed.
        """

    def free_bytes(self) -> int | None:
        """Return how many bytes can still be written; None if there is no such limit."""


def missing(path: str, uri: str) -> StoreFileMissing:
    """Return the error for a file that should exist, with its remedy."""
    return StoreFileMissing(
        f"The store {uri} has no file {path!r}. Restore it from a copy of the store, or point "
        "EVENTBRIDGE_STORE_URI at the store that has it. `eventbridge audit` names every missing file of "
        "committed batches, and `eventbridge batches repair BATCH` rebuilds most files of a batch."
    )


def store_gone(uri: str) -> StoreError:
    """Return the error for a store that disappeared while a process used it, such as an unmounted volume."""
    return StoreError(
        f"The store {uri} no longer exists, or is not the one that this process wrote to. Restore or mount it: "
        "this process does not write into a new store"
    )


def check_path(path: str) -> str:
    """Return `path` if it names a file inside a store; raise StoreError otherwise.

    No part may be empty or begin with a dot, so that `..` cannot leave the store and a writer's private files stay
    invisible.
    """
    for part in path.split("/"):
        if not part or part.startswith(".") or "\\" in part or not part.isprintable():
            raise StoreError(
                f"{path!r} is not a path of a file in the store. "
                "Write printable parts with / between them; none may be empty, begin with a dot or contain a backslash."
            )
    return path


def check_prefix(prefix: str) -> str:
    """Return `prefix` if it can begin a path; raise StoreError otherwise."""
    check_path(prefix + "x")
    return prefix
