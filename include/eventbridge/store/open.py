"""Opens the store at a URI."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from eventbridge.config.connection import Connection, connections_from_environment
from eventbridge.errors import UserError
from eventbridge.store.compacted import CompactedStore
from eventbridge.store.file import FileStore
from eventbridge.store.protocol import Store

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"[\w!*'()=-][\w.!*'()=-]*(/[\w!*'()=-][\w.!*'()=-]*)*", re.ASCII)
_CONNECTION = re.compile(r"[\w.-]+", re.ASCII)


_FORMS = "Write file:///absolute/folder, with three slashes, or s3://bucket/prefix."


def open_store(uri: str, connections: Callable[[str], Connection] | None = None) -> Store:
    """Return the store at `uri`: `file:///absolute/folder` or `s3://connection@bucket/prefix`. Raises UserError.

    `connections` looks up the connection that an S3 store names, by default in this process's environment
    (EVENTBRIDGE_CONN_<ID>), where Spark's workers find it. The function itself neither accesses the store nor looks up
    the connection, so errors of an unreachable store are raised by the first call of a method.
    """
    parts = _parts_of(uri)
    if parts.scheme == "s3":
        return CompactedStore(_s3_store(parts, connections or connections_from_environment(os.environ)))
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise UserError(f"{parts.scheme}://... is not a URI of a store. {_FORMS}")  # it may contain a secret
    if parts.query or parts.fragment:
        raise UserError(f"The store's URI has a ? or # after {parts.path!r}. Write ? as %3F and # as %23.")
    return CompactedStore(FileStore(Path(unquote(parts.path))))


def _parts_of(uri: str) -> SplitResult:
    try:
        return urlsplit(uri)
    except ValueError:  # its message may quote a secret
        raise UserError(f"The store's URI cannot be read. {_FORMS}") from None


def _s3_store(parts: SplitResult, connections: Callable[[str], Connection]) -> Store:
    from eventbridge.clients.s3.access import S3Access
    from eventbridge.store.s3 import S3Store  # boto3 is needed here only

    connection_id, _, bucket = parts.netloc.rpartition("@")
    prefix = parts.path.strip("/")
    # The message does not show the URI, because it may contain a secret.
    if "@" in parts.netloc and not _CONNECTION.fullmatch(connection_id):
        raise UserError(
            "The store's URI names no connection before its @. "
            "Write s3://connection@bucket/prefix; put the keys into the connection, never into the URI."
        )
    if not _BUCKET.fullmatch(bucket) or parts.query or parts.fragment or (prefix and not _PREFIX.fullmatch(prefix)):
        raise UserError(
            "The store's URI is not of the form s3://bucket/prefix or s3://connection@bucket/prefix. "
            "A bucket's name has 3 to 63 characters of a-z 0-9 . -. "
            "A prefix has parts of A-Z a-z 0-9 _ - . = ! * ' ( ) with / between them."
        )

    def access() -> S3Access:
        return S3Access.from_connection(connections(connection_id)) if connection_id else S3Access()

    return S3Store(bucket, prefix, access, connection_id=connection_id)
