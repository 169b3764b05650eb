"""Exports dead letters into a file, as JSON lines or as Parquet."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eventbridge.cli.output import print_line
from eventbridge.errors import InfrastructureError, UserError
from eventbridge.event.json_document import write_document
from eventbridge.event.plain import plain
from eventbridge.private_files import open_private

if TYPE_CHECKING:
    from eventbridge.dead_letters.reader import DeadLetter

#: Dead letters in memory at a time, and in a row group of Parquet.
_AT_ONCE = 1_000


def export_dead_letters(name: str, letters: Iterator[DeadLetter]) -> int:
    """Write whole dead letters to a file, or for `-` as JSON lines to standard output; return how many.

    Raises UserError for another suffix or an existing file, InfrastructureError if the file cannot be written.
    """
    if name == "-":
        return _print_lines(letters)
    path = Path(name)
    if path.suffix not in (".jsonl", ".parquet"):
        raise UserError(f"{name!r} ends neither in .jsonl nor in .parquet. Name such a file, or - for JSON lines.")
    if path.exists():
        raise UserError(f"{name} already exists. Name another file, or remove it.")
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    write = _write_parquet if path.suffix == ".parquet" else _write_lines
    try:
        count = write(draft, letters)
        # link, not rename: never overwrites a file that appeared meanwhile
        os.link(draft, path)
    except FileExistsError:
        raise UserError(f"{name} already exists. Name another file, or remove it.") from None
    except OSError as error:
        raise InfrastructureError(
            f"cannot write {name}: {os.strerror(error.errno) if error.errno else error}. Nothing was written."
        ) from error
    finally:
        draft.unlink(missing_ok=True)
    return count


def with_text_id(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record with its delivery id as text."""
    from eventbridge.event.ids import delivery_id_text

    raw = record["delivery_id"]
    return record | {"delivery_id": delivery_id_text(raw) if raw is not None else None}


def _line(letter: DeadLetter) -> str:
    from eventbridge.dead_letters.selection import name_of

    return write_document(plain({"name": name_of(letter.record)} | with_text_id(letter.record)))


def _print_lines(letters: Iterator[DeadLetter]) -> int:
    count = 0
    for count, letter in enumerate(letters, 1):  # noqa: B007  # counted when the loop has ended
        print_line(_line(letter))
    return count


def _write_lines(path: Path, letters: Iterator[DeadLetter]) -> int:
    count = 0
    with os.fdopen(open_private(path, os.O_WRONLY | os.O_EXCL), "w", encoding="utf-8") as file:
        for letter in letters:
            file.write(_line(letter) + "\n")
            count += 1
        file.flush()
        os.fsync(file.fileno())
    return count


def _write_parquet(path: Path, letters: Iterator[DeadLetter]) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from eventbridge.store.schemas import DEAD_LETTER

    count = 0
    with os.fdopen(open_private(path, os.O_WRONLY | os.O_EXCL), "wb") as file:
        with pq.ParquetWriter(file, DEAD_LETTER, compression="zstd") as writer:
            while rows := [letter.record for letter in islice(letters, _AT_ONCE)]:
                writer.write_table(pa.Table.from_pylist(rows, schema=DEAD_LETTER))
                count += len(rows)
        file.flush()
        os.fsync(file.fileno())
    return count
