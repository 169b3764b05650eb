"""Implements the store in a bucket. Objects become visible complete, and conditional puts decide which writer wins."""

from __future__ import annotations

import builtins
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any, TypeVar

import pyarrow as pa

from eventbridge.clients.s3.access import ATTEMPTS, S3Access, S3Clients
from eventbridge.clients.s3.errors import CUT_SHORT, is_passing, s3_errors
from eventbridge.clients.s3.upload import upload
from eventbridge.errors import StoreError
from eventbridge.fault_points import reach
from eventbridge.store.protocol import check_path, check_prefix, missing

#: The maximum size of a file that is written with pyarrow. For a larger file, pyarrow may complete the upload although
#: a part failed, which leaves a truncated file.
ARROW_MAX_BYTES = 8 << 20

#: The length of a writer's name in an object's metadata, and the maximum number of requests for it. A response may be
#: cut off within its headers, which leaves a shorter name.
_WRITER_LETTERS = 32
_WRITER_REQUESTS = 3

#: The maximum number of keys that S3 accepts in one request.
_KEYS_PER_DELETE = 1_000
T = TypeVar("T")
_LONGEST_WAIT_SECONDS = 16.0


class S3Store:
    """A store under `prefix` in a bucket; `access` returns how to reach it and is called at the first operation.

    Reads and small writes use pyarrow's S3 file system. Operations that pyarrow lacks use boto3: conditional puts,
    encryption, uploads in parts, listings. A process that dies during an upload leaves invisible parts; a lifecycle
    rule of the bucket removes them.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str,
        access: Callable[[], S3Access],
        *,
        connection_id: str = "",
        attempts: int = ATTEMPTS,
    ) -> None:
        self._bucket = bucket
        self._base = f"{prefix}/" if prefix else ""
        self._access = access
        self._connection_id = connection_id
        self._attempts = attempts
        self._lock = threading.Lock()
        self._made: tuple[int, S3Clients] | None = None
        self._bucket_exists = False

    @property
    def uri(self) -> str:
        """Return `s3://`, the connection's name if there is one, bucket and prefix, without secrets."""
        user = f"{self._connection_id}@" if self._connection_id else ""
        return f"s3://{user}{self._bucket}/{self._base}".rstrip("/")

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        """Write a file; an existing one is replaced."""
        key = self._key(path)
        reach("store.put")
        with self._errors("write", path) as clients:
            if len(data) > ARROW_MAX_BYTES or clients.access.encryption:
                upload(clients, self._bucket, key, data, {})
            else:
                again(lambda: self._write(clients, key, data), self._attempts)
        reach("store.put.done")

    def create(self, path: str, data: bytes | pa.Buffer) -> bool:
        """Write a file unless it exists, and return whether it was written; the server decides which writer wins."""
        key = self._key(path)
        reach("store.create")
        with self._errors("write", path) as clients:
            won = self._create(clients, key, data)
        reach("store.create.done")
        return won

    def get(self, path: str) -> bytes:
        """Return the bytes of a file. Raises StoreFileMissing if there is none."""
        key = self._key(path)
        with self._errors("read", path) as clients:
            reach("store.get")
            with closing(self._file(clients, path, key)) as file:
                return file.read()

    def open(self, path: str) -> pa.NativeFile:
        """Return a file for random-access reads, by ranges. Raises StoreFileMissing if there is none."""
        key = self._key(path)
        with self._errors("read", path) as clients:
            reach("store.open")
            return pa.PythonFile(self._file(clients, path, key), mode="r")

    def exists(self, path: str) -> bool:
        """Return whether a file with this name exists."""
        key = self._key(path)
        with self._errors("look for", path) as clients:
            reach("store.exists")
            found = self._head(clients, key)
            if found is None:
                self._require_bucket(clients)
            return found is not None

    def list(self, prefix: str, after: str = "") -> builtins.list[str]:
        """Return, sorted, all paths that begin with `prefix` and sort after `after`; sends one request per 1,000."""
        check_prefix(prefix)
        with self._errors("list", prefix) as clients:
            reach("store.list")
            keys = [path for path, _ in self._entries(clients, prefix, after)]
        return sorted(path for path in keys if path > after and _is_path(path))

    def size(self, prefix: str) -> int:
        """Return the total bytes of all files whose paths begin with `prefix`; sends one request per 1,000."""
        check_prefix(prefix)
        with self._errors("measure", prefix) as clients:
            reach("store.size")
            return sum(size for path, size in self._entries(clients, prefix) if _is_path(path))

    def delete(self, path: str) -> None:
        """Remove a file if it exists."""
        key = self._key(path)
        with self._errors("delete", path) as clients:
            reach("store.delete")
            clients.boto.delete_object(Bucket=self._bucket, Key=key)
        reach("store.delete.done")

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove the files that exist; sends one request per 1,000."""
        for first in range(0, len(paths), _KEYS_PER_DELETE):
            some = paths[first : first + _KEYS_PER_DELETE]
            with self._errors("delete", some[0]) as clients:
                reach("store.delete")
                named = {"Objects": [{"Key": self._key(path)} for path in some], "Quiet": True}
                response = clients.boto.delete_objects(Bucket=self._bucket, Delete=named)
            for error in response.get("Errors", ()):
                raise StoreError(
                    f"Cannot delete {error.get('Key')!r} in the bucket {self._bucket!r}: {error.get('Code')} "
                    f"{error.get('Message')}. Grant the connection's user s3:DeleteObject."
                )
            reach("store.delete.done")

    def free_bytes(self) -> int | None:
        """Return None, because a bucket has no limit."""
        return None

    def _entries(self, clients: S3Clients, prefix: str, after: str = "") -> Iterator[tuple[str, int]]:
        options = {"StartAfter": self._base + after} if after else {}
        pages = clients.boto.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._base + prefix, **options
        )
        for page in pages:
            for entry in page.get("Contents", ()):
                yield entry["Key"].removeprefix(self._base), entry["Size"]

    def _key(self, path: str) -> str:
        return self._base + check_path(path)

    @contextmanager
    def _errors(self, verb: str, path: str) -> Iterator[S3Clients]:
        with s3_errors(verb, path, self._bucket, "S3"):
            clients = self._clients()
        with s3_errors(verb, path, self._bucket, clients.endpoint):
            yield clients

    def _clients(self) -> S3Clients:
        """Return this process's clients; a forked process gets its own, because it must not use its parent's."""
        with self._lock:
            if self._made is None or self._made[0] != os.getpid():
                self._made = (os.getpid(), S3Clients(self._access(), self._attempts))
            return self._made[1]

    def _write(self, clients: S3Clients, key: str, data: bytes | pa.Buffer) -> None:
        with clients.files().open_output_stream(f"{self._bucket}/{key}") as file:
            file.write(data)

    def _file(self, clients: S3Clients, path: str, key: str) -> _S3File:
        try:
            opened = again(lambda: self._open_stream(clients, key), self._attempts)
            return _S3File(opened, lambda: self._errors("read", path), self._attempts)
        except FileNotFoundError as error:
            self._require_bucket(clients)
            raise missing(path, self.uri) from error

    def _open_stream(self, clients: S3Clients, key: str) -> Any:
        """Return pyarrow's file; an empty file is accepted only if a second response says that its length is 0."""
        file = clients.files().open_input_file(f"{self._bucket}/{key}")
        if file.size() == 0 and (self._head(clients, key) or {}).get("ContentLength") != 0:
            raise OSError(CUT_SHORT)
        return file

    def _require_bucket(self, clients: S3Clients) -> None:
        """Raise an error if the bucket is missing, because a request for a file fails as if only the file were
        missing."""
        from botocore.exceptions import ClientError

        if self._bucket_exists:
            return
        try:
            clients.boto.head_bucket(Bucket=self._bucket)
        except ClientError as error:
            if _status(error) == 404:
                error.response["Error"]["Code"] = "NoSuchBucket"
            raise
        self._bucket_exists = True

    def _head(self, clients: S3Clients, key: str) -> dict[str, Any] | None:
        from botocore.exceptions import ClientError

        try:
            return dict(clients.boto.head_object(Bucket=self._bucket, Key=key))
        except ClientError as error:
            if _status(error) == 404:
                return None
            raise

    def _writer(self, clients: S3Clients, key: str) -> str | None:
        """Return the name of an object's writer, "" if no response has it complete, or None if there is no object."""
        for _ in range(_WRITER_REQUESTS):
            found = self._head(clients, key)
            if found is None:
                return None
            writer = str(found.get("Metadata", {}).get("writer", ""))
            if len(writer) == _WRITER_LETTERS:
                return writer
        return ""

    def _create(self, clients: S3Clients, key: str, data: bytes | pa.Buffer) -> bool:
        from botocore.exceptions import ClientError

        writer = uuid.uuid4().hex
        for attempt in range(self._attempts):
            try:
                upload(clients, self._bucket, key, data, {"Metadata": {"writer": writer}}, {"IfNoneMatch": "*"})
                return True
            except ClientError as error:
                if _status(error) == 409 and attempt + 1 < self._attempts:  # the server cannot decide yet who wins
                    _wait_before(attempt)
                    continue
                if _status(error) != 412 and error.response.get("Error", {}).get("Code") != "NoSuchUpload":
                    raise
                # The object exists, perhaps from this call, because boto3 repeats a request whose response was lost.
                found = self._writer(clients, key)
                if found is None:
                    raise
                return found == writer
        raise StoreError(f"Cannot create {key!r} in the bucket {self._bucket!r}. Try again.")  # not reached


def _status(error: Any) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _is_path(path: str) -> bool:
    try:
        return bool(check_path(path))
    except StoreError:
        return False


def _wait_before(attempt: int) -> None:
    """Sleep after the n-th attempt (from 0), for a random time up to 1, 2, 4, 8, 16 s, to spread the callers."""
    time.sleep(random.uniform(0, min(2.0**attempt, _LONGEST_WAIT_SECONDS)))


def again(call: Callable[[], T], attempts: int) -> T:
    """Return the result of `call`, which is called at most `attempts` times: again after each transient error of S3.

    pyarrow's own retries are not enough, because it makes none if an error message is longer than the requested bytes.
    """
    for attempt in range(attempts - 1):
        try:
            return call()
        except OSError as error:
            if not is_passing(error):
                raise
        _wait_before(attempt)
    return call()


class _S3File:
    """An open file for `pyarrow.PythonFile`; it reads ranges, retries reads, and raises StoreError if they fail."""

    def __init__(self, file: Any, errors: Callable[[], AbstractContextManager[Any]], attempts: int) -> None:
        self._file = file
        self._errors = errors
        self._attempts = attempts
        self._position = 0

    @property
    def closed(self) -> bool:
        """Return whether `close` was called."""
        return bool(self._file.closed)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def readable(self) -> bool:
        """Return True, because the file can be read."""
        return True

    def writable(self) -> bool:
        """Return False, because the file cannot be written."""
        return False

    def seekable(self) -> bool:
        """Return True, because the file can be read from any position."""
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = 0) -> int:
        """Set the position of the next read: from the beginning (0), the current position (1), the end (2)."""
        self._position = offset + (0, self._position, self._file.size())[whence]
        return self._position

    def read(self, count: int = -1) -> bytes:
        """Return the next bytes, by default all that remain."""
        remaining = max(self._file.size() - self._position, 0)
        wanted = remaining if count is None or count < 0 else min(count, remaining)
        if not wanted:
            return b""
        with self._errors():
            data = bytes(again(lambda: self._file.read_at(wanted, self._position), self._attempts))
        self._position += len(data)
        return data
