"""The format version of files in the store; a newer one is refused, because this version may not understand it.

A file that names no version was written before versions existed, in format 1.
"""

from __future__ import annotations

from typing import Final

from eventbridge.errors import NewerFormatError, StoreFileDamaged

#: The newest format that this version reads, and the one that it writes, for Parquet files and manifests.
FORMAT: Final = 1
#: The metadata key in which a Parquet file names its format.
PARQUET_KEY: Final = "eventbridge.format"


def require_known_format(path: str, found: object) -> None:
    """Check that a file's format can be read; `found` is a number, or its text, or None if the file names none.

    Raises NewerFormatError for a newer format, StoreFileDamaged for a value that is not a number.
    """
    if found is None:
        return
    try:
        number = int(str(found))
    except ValueError as error:
        raise StoreFileDamaged(f"{path!r} names {found!r} as its format, which is not a number.") from error
    if number > FORMAT:
        raise NewerFormatError(path, number, FORMAT)
