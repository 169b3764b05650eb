"""Provides a store in memory, for tests of code that uses a store; it passes the same contract suite as real stores."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from eventbridge.fault_points import reach
from eventbridge.store.protocol import Store, check_path, check_prefix, missing


class InMemoryStore:
    """Files in a dictionary; `free` is the result of `free_bytes`."""

    uri = "memory:"

    def __init__(self, free: int | None = None) -> None:
        self.free = free
        self._files: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        """Write a file, replacing an existing one."""
        check_path(path)
        reach("store.put")
        with self._lock:
            self._files[path] = bytes(data)
        reach("store.put.done")

    def create(self, path: str, data: bytes | pa.Buffer) -> bool:
        """Write a file unless there is one."""
        check_path(path)
        reach("store.create")
        with self._lock:
            won = path not in self._files
            if won:
                self._files[path] = bytes(data)
        reach("store.create.done")
        return won

    def get(self, path: str) -> bytes:
        """Return the bytes of a file. Raises StoreFileMissing."""
        reach("store.get")
        return self._read(path)

    def open(self, path: str) -> pa.NativeFile:
        """Return a seekable file for reading. Raises StoreFileMissing."""
        reach("store.open")
        return pa.BufferReader(self._read(path))

    def exists(self, path: str) -> bool:
        """Return whether a file with this name exists."""
        reach("store.exists")
        return check_path(path) in self._files

    def list(self, prefix: str, after: str = "") -> builtins.list[str]:
        """Return the paths of all files that begin with `prefix` and sort after `after`, sorted."""
        check_prefix(prefix)
        reach("store.list")
        with self._lock:
            return sorted(path for path in self._files if path.startswith(prefix) and path > after)

    def size(self, prefix: str) -> int:
        """Return the bytes of all files that begin with `prefix`."""
        check_prefix(prefix)
        reach("store.size")
        with self._lock:
            return sum(len(data) for path, data in self._files.items() if path.startswith(prefix))

    def delete(self, path: str) -> None:
        """Remove a file; harmless if there is none."""
        check_path(path)
        reach("store.delete")
        with self._lock:
            self._files.pop(path, None)
        reach("store.delete.done")

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove files; missing ones are ignored."""
        reach("store.delete")
        with self._lock:
            for path in paths:
                self._files.pop(check_path(path), None)
        reach("store.delete.done")

    def free_bytes(self) -> int | None:
        """Return `free`."""
        return self.free

    def _read(self, path: str) -> bytes:
        try:
            return self._files[check_path(path)]
        except KeyError:
            raise missing(path, self.uri) from None


class CountingStore:
    """Wraps a store, and records the paths that its listings found, and those that were read or opened."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.listed: builtins.list[str] = []
        self.read: builtins.list[str] = []

    def __getattr__(self, name: str) -> Any:
        """Delegate everything else to the wrapped store."""
        return getattr(self._store, name)

    def get(self, path: str) -> bytes:
        """Record the path, and return the bytes of a file."""
        self.read.append(path)
        return self._store.get(path)

    def open(self, path: str) -> pa.NativeFile:
        """Record the path, and return a file for reading."""
        self.read.append(path)
        return self._store.open(path)

    def list(self, prefix: str, after: str = "") -> builtins.list[str]:
        """Record the paths found, and return them."""
        found = self._store.list(prefix, after)
        self.listed += found
        return found
