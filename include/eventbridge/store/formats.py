"""The version of the format that files in the store are of; a newer one is refused, as it may say what we cannot read.

A file that names none was written before there were versions, in format 1.
"""

from __future__ import annotations

from typing import Final

from eventbridge.errors import NewerFormatError, StoreFileDamaged

#: The newest format that this version reads, and the one it writes: of Parquet files and of manifests.
FORMAT: Final = 1
#: Where a Parquet file names its format: a key of its metadata.
PARQUET_KEY: Final = "eventbridge.format"


def require_known_format(path: str, found: object) -> None:
    """Return if a file's format can be read: a number, or its text, None where the file names none.

    Raises NewerFormatError for one that is newer than ours, StoreFileDamaged for what is not a number.
    """
    if found is None:
        return
    try:
        number = int(str(found))
    except ValueError as error:
        raise StoreFileDamaged(f"{path!r} names {found!r} as its format, which is not a number.") from error
    if number > FORMAT:
        raise NewerFormatError(path, number, FORMAT)
