"""What an object store must offer, and how its paths are spelt; called by the stages."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from eventbridge.errors import StoreError, StoreFileDamaged, StoreFileMissing

__all__ = ["Store", "StoreError", "StoreFileDamaged", "StoreFileMissing", "checked_path", "checked_prefix", "missing"]


class Store(Protocol):
    """Immutable files by path; safe to use from several threads and processes at once.

    Paths are relative, with `/` between their parts. A file is seen whole or not at all, whatever dies on the way.
    What `put` and `create` have returned for survives power loss. Every method raises StoreError where
    the store cannot do what it is asked.
    """

    @property
    def uri(self) -> str:
        """Return the URI that `open_store` opens this store by."""

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        """Write a file; an existing one is replaced."""

    def create(self, path: str, data: bytes | pa.Buffer) -> bool:
        """Write a file unless there is one; of many callers one wins, False tells the others that it is durable."""

    def get(self, path: str) -> bytes:
        """Return the bytes of a file; raises StoreFileMissing."""

    def open(self, path: str) -> pa.NativeFile:
        """Return a file for reading at any place; the caller closes it. Raises StoreFileMissing."""

    def exists(self, path: str) -> bool:
        """Say whether there is a file of this name."""

    def list(self, prefix: str, after: str = "") -> builtins.list[str]:
        """Return the paths of all files that begin with `prefix`, as text, sorted by code point; `""` lists all.

        Only those that sort after the text `after`. It costs by what is found: a stage lists once at most.
        """

    def size(self, prefix: str) -> int:
        """Return the bytes of all files that begin with `prefix`, `""` measures all; it costs as `list` does."""

    def delete(self, path: str) -> None:
        """Remove a file; harmless if there is none."""

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove files, those that are there; cheaper than one by one, and folders that nothing is left in go too.

        Of what raises StoreError some files may be gone.
        """

    def free_bytes(self) -> int | None:
        """Return how many bytes can still be written, None where there is no such limit."""


def missing(path: str, uri: str) -> StoreFileMissing:
    """Return the error for a file that should be there, with what to do about it."""
    return StoreFileMissing(
        f"The store {uri} holds no file {path!r}. Put it back from a copy of the store, or point "
        "EVENTBRIDGE_STORE_URI at the store that has it. `eventbridge audit` names every file that is missing of "
        "committed batches, and `eventbridge batch repair BATCH` makes most files of a batch again."
    )


def gone(uri: str) -> StoreError:
    """Return the error for a store that vanished under a process, as that of a volume that is not mounted any more."""
    return StoreError(
        f"The store {uri} is gone, or is another one than this process wrote to. Put it back, or mount it again: "
        "into a new one this process writes nothing"
    )


def checked_path(path: str) -> str:
    """Return `path` if it names a file inside a store, else raise StoreError.

    No part may be empty or begin with a dot, so `..` cannot leave the store and a writer's own files stay out of sight.
    """
    for part in path.split("/"):
        if not part or part.startswith(".") or "\\" in part or not part.isprintable():
            raise StoreError(
                f"{path!r} is not a path of a file in the store. "
                "Write printable parts with / between them; none is empty, begins with a dot or holds a backslash."
            )
    return path


def checked_prefix(prefix: str) -> str:
    """Return `prefix` if it is the beginning of some path, else raise StoreError."""
    checked_path(prefix + "x")
    return prefix
