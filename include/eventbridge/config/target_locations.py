"""Decides where targets of rules may write: in the folders for file targets, but never into the installation's own
data."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import unquote

_BUCKET = re.compile(r"s3://(?:[^@/]*@)?([^/]+)/?(.*)")
_FOLDER = re.compile(r"file://(?:localhost)?(/.*)")
_SQLITE = re.compile(r"sqlite(?:\+\w+)?:///([^?]+)")


@dataclass(frozen=True)
class TargetLocations:
    """The locations where targets may write.

    File targets write only in `file_folders`. No target writes to a path or `s3://bucket/key` that begins with a member
    of `own`. `begins` returns these prefixes, with symbolic links in paths resolved.
    """

    file_folders: tuple[Path, ...] = ()
    own: tuple[str, ...] = ()

    def owns_file(self, folder: str, names: Sequence[str]) -> bool:
        """Return whether a file is the installation's own.

        A file in a folder for targets inside an own folder is not. `folder` is a folder for targets; `names` lead from
        it to the file and contain no symbolic link.
        """
        real = os.path.join(_real(folder), *names, "")  # noqa: PTH118  # with a slash, as own folders have
        around = [each for each in self.own if real.startswith(each)]
        if not around:
            return False
        folders = [f"{_real(str(each))}/" for each in self.file_folders]
        inner = [each for each in folders if real.startswith(each)]
        return not all(any(each.startswith(own) and each != own for each in inner) for own in around)

    def owns_prefix(self, bucket: str, prefix: str) -> bool:
        """Return whether keys with a prefix are the installation's own.

        Only the names of buckets are compared, because two endpoints with different names may be the same server.
        """
        below = _bucket_prefix(bucket, prefix)
        return any(below.startswith(each) for each in self.own)

    def surrounds_folder(self, folder: str) -> bool:
        """Return whether files of the installation are below a folder."""
        below = f"{os.path.realpath(folder)}/"
        return any(each.startswith(below) for each in self.own)

    def surrounds_prefix(self, bucket: str, prefix: str) -> bool:
        """Return whether keys of the installation begin with a prefix; see `owns_prefix`."""
        below = _bucket_prefix(bucket, prefix)
        return any(each.startswith(below) for each in self.own)


#: Locations without a folder for file targets.
NOWHERE: Final = TargetLocations()


@lru_cache(8)  # a push calls it for each of thousands of targets
def begins(folders: tuple[Path, ...], uris: tuple[str, ...]) -> tuple[str, ...]:
    """Return the prefixes of paths and keys in these folders, and in the stores, ledgers and rule files at these
    URIs."""
    own = [f"{os.path.realpath(each)}/" for each in folders]
    for uri in uris:
        if found := _BUCKET.fullmatch(uri):
            own.append(_bucket_prefix(found[1], found[2]))
        elif found := _FOLDER.fullmatch(uri):
            own.append(f"{os.path.realpath(unquote(found[1]))}/")
        elif found := _SQLITE.match(uri):
            own.append(os.path.realpath(found[1]))  # without a slash, so that the `-wal` and `-shm` files are included
    return tuple(own)


@lru_cache(64)
def _real(folder: str) -> str:
    return os.path.realpath(folder)


def _bucket_prefix(bucket: str, prefix: str) -> str:
    names = prefix.strip("/")
    return f"s3://{bucket}/{names}/" if names else f"s3://{bucket}/"
