"""From a URI to a store."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from eventbridge.errors import UserError
from eventbridge.store.file import FileStore
from eventbridge.store.protocol import Store


def open_store(uri: str) -> Store:
    """Return the store at `uri`, `file:///absolute/folder`; raises UserError for any other.

    Nothing is made or read yet, so a store that cannot be reached shows with the first call.
    """
    parts = urlsplit(uri)
    if parts.scheme == "s3":
        raise UserError(f"The store {uri!r} is not in this version. Use file:///absolute/folder.")
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise UserError(f"{uri!r} is no URI of a store. Write file:///absolute/folder, with three slashes.")
    if parts.query or parts.fragment:
        raise UserError(f"{uri!r} is no URI of a store. Write ? as %3F and # as %23.")
    return FileStore(Path(unquote(parts.path)))
