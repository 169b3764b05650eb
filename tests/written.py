"""What files hold, for tests that look for what must not be written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def texts(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of every file below a folder; of Parquet also what it holds, unpacked."""
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        yield from texts_of(str(path), path.read_bytes())


def texts_of(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the same of one file."""
    yield name, data
    if name.endswith(".parquet"):
        cells = [cell for row in pq.read_table(pa.BufferReader(data)).to_pylist() for cell in row.values()]
        yield f"{name} unpacked", b"\n".join(_bytes(cell) for cell in cells)


def _bytes(cell: object) -> bytes:
    if isinstance(cell, bytes):
        return cell
    if isinstance(cell, list):
        return b"\n".join(map(_bytes, cell))
    if isinstance(cell, dict):
        return b"\n".join(map(_bytes, cell.values()))
    return str(cell).encode()
