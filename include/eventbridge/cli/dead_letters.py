"""Defines the command group `dead-letters`, which lists, shows and exports dead letters."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventbridge.cli.interrupt import Interrupts
from eventbridge.cli.options import DeadLetterOptions, refuse_unknown, takes_records, warn_about_damage
from eventbridge.cli.output import (
    JsonOption,
    cell_text,
    note,
    plural,
    print_line,
    readable,
    safe_json,
    show_document,
    show_fields,
    show_table,
    show_text,
)
from eventbridge.cli.progress import shown_progress
from eventbridge.cli.runtime import open_runtime
from eventbridge.cli.suggestion import Group
from eventbridge.errors import InfrastructureError, NotFoundError, UserError
from eventbridge.event.json_document import write_document
from eventbridge.event.json_text import bytes_as_text, plain
from eventbridge.files import open_private

if TYPE_CHECKING:
    from eventbridge.dead_letters.reader import DeadLetter, DeadLetterName
    from eventbridge.dead_letters.redrives import Mark
    from eventbridge.progress import Progress
    from eventbridge.runtime.batch_files import Damaged

app = typer.Typer(cls=Group, help="List, show and export dead letters.", no_args_is_help=True)

_RESPONSE_LINES = 20
_MAX_OLDER = 10


@app.command("list")
@takes_records
def list_dead_letters(
    chosen: DeadLetterOptions,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of dead letters to list.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List dead letters, newest batch first.

    The first column is the NAME for `dead-letters show`. It begins with the delivery id or, if the event is not a
    CloudEvent (malformed), with the event's position: bus/topic/partition/offset.
    """
    from eventbridge.dead_letters.reader import select_dead_letters
    from eventbridge.dead_letters.redrives import Marks
    from eventbridge.dead_letters.selection import name_of

    with open_runtime(expects_ledger=True) as runtime:
        selection = chosen.selection(runtime.clock())
        damaged: Damaged = {}
        found = list(islice(select_dead_letters(runtime, selection, damaged=damaged), limit + 1))
        if not found:
            refuse_unknown(runtime, chosen.rule, chosen.target)
        more, found = len(found) > limit, found[:limit]
        marks = Marks(runtime)
        marked = [(each.record, marks.mark(each)) for each in found]
    if as_json:
        show_document([{"name": name_of(each)} | with_text_id(each) | {"redriven": mark} for each, mark in marked])
    else:
        _show_list(marked)
    if more and not as_json:
        note(f"there are more than {limit}; use --limit or a filter")
    warn_about_damage(damaged)


def _show_list(marked: Sequence[tuple[dict[str, Any], Mark | None]]) -> None:
    from eventbridge.dead_letters.selection import name_of

    columns = ["name", "rule", "target", "reason", "event", "detail"]
    cells = [[name_of(r), r["rule"], r["target"], r["reason"], r["event_id"], r["detail"]] for r, _ in marked]
    if any(mark for _, mark in marked):
        columns.insert(5, "redriven")
        for row, (_, mark) in zip(cells, marked, strict=True):
            row.insert(5, mark and f"{cell_text(mark.at)} {mark.outcome}")
    show_table("Dead letters", columns, cells, ids={"name"})


@app.command(short_help="Write dead letters to a file of JSON lines or Parquet.")
@takes_records
def export(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="File to write, ending in .jsonl or .parquet; - prints JSON lines.")
    ],
    chosen: DeadLetterOptions,
    as_json: JsonOption = False,
) -> None:
    """Write complete dead letters, with event, request and attempts, into a file of JSON lines or Parquet.

    An existing file is not overwritten. The file appears when it is complete, or not at all.
    """
    from eventbridge.dead_letters.reader import select_dead_letters

    if as_json and file == "-":
        raise UserError(
            "--json reports on the written file, and - is not a file. Leave --json out: - already prints JSON"
        )
    with open_runtime(expects_ledger=True) as runtime:
        selection = chosen.selection(runtime.clock())
        if next(select_dead_letters(runtime, selection, damaged={}), None) is None:
            refuse_unknown(runtime, chosen.rule, chosen.target)
        damaged: Damaged = {}
        # Interrupts, so that SIGTERM also removes the draft. JSON lines on the terminal are progress enough.
        with Interrupts(), shown_progress("exporting", "dead letters", hidden=file == "-") as progress:
            letters = select_dead_letters(runtime, selection, whole=True, damaged=damaged)
            count = export_dead_letters(file, _counted(letters, progress))
    if as_json:
        show_document({"file": file, "dead_letters": count})
    elif file != "-":
        print_line(f"{plural(count, 'dead letter', 'dead letters')} written to {file}.")
        if count:
            print_line("They also stay in the store: `eventbridge redrives start` delivers dead letters again.")
    warn_about_damage(damaged)


@app.command(short_help="Show one dead letter with its event, request and attempts.")
def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A name from `list`, a delivery id or its beginning, or a position.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Show one complete dead letter: the event, the transformed request, every attempt.

    NAME is the first column of `dead-letters list`. A delivery id (which the target gets as `webhook-id`) or a position
    [bus/]topic/partition/offset shows the newest dead letter; a note then names the others.
    """
    from eventbridge.dead_letters.reader import DeadLetter, find_dead_letters, read_dead_letter
    from eventbridge.dead_letters.redrives import Marks
    from eventbridge.dead_letters.selection import name_of

    with open_runtime(expects_ledger=True) as runtime:
        damaged: Damaged = {}
        try:
            newest, *others = find_dead_letters(runtime, name, damaged)
        except NotFoundError as error:
            if damaged:  # the dead letter may be in one of the damaged files
                note(str(error))
                warn_about_damage(damaged)
            raise
        record = read_dead_letter(runtime, newest.file, newest.row)
        mark = Marks(runtime).mark(DeadLetter(newest.file, newest.row, record))
    if others:
        note(_older_note(newest, others))
    if as_json:
        show_document({"name": newest.name} | with_text_id(record) | {"redriven": mark})
    else:
        _show(name_of(record), record, mark)
    warn_about_damage(damaged)


def _older_note(newest: DeadLetterName, others: Sequence[DeadLetterName]) -> str:
    """Return a note with the older dead letters of the same delivery or position."""
    names = [f"  {each.name}" for each in others[:_MAX_OLDER]]
    more = (
        [f"  and {len(others) - _MAX_OLDER} more: `eventbridge dead-letters list --name {newest.subject}`"]
        if len(others) > _MAX_OLDER
        else []
    )
    head = f"this is the newest of {len(others) + 1} dead letters of {newest.subject}. The older ones:"
    return "\n".join([head, *names, *more])


def _show(name: str, record: dict[str, Any], mark: Mark | None) -> None:
    attempts = record["attempts"]
    head = ("rule", "target", "reason", "detail", "event_id", "source")
    position = "/".join(str(record[part]) for part in ("bus", "topic", "partition_id", "offset"))
    times = ("arrived_at", "first_attempt_at", "last_attempt_at", "rule_version", "batch_id")
    show_fields(
        [
            ("name", name),
            *((each.replace("_", " "), record[each]) for each in head),
            ("position", position),
            *((each.replace("_", " "), record[each]) for each in times),
            ("redriven", mark and f"{cell_text(mark.at)} {mark.outcome}"),
            ("redrive id", mark and mark.redrive_id),
        ]
    )
    for title, body in (("Event", record["event"]), ("Request", record["request"])):
        if body is not None:
            print_line()
            show_text(title, readable(body))
    print_line()
    show_table(
        "Attempts, times in UTC",
        ["number", "started", "ms", "status", "code", "error"],
        [[a["number"], a["started_at"], a["duration_ms"], a["outcome"], _code(a), _error(a)] for a in attempts],
    )
    response = attempts[-1]["response_head"] if attempts else None
    if response:
        lines = bytes_as_text(response).rstrip("\n").split("\n")
        cut = (
            [f"... {len(lines) - _RESPONSE_LINES} more lines; --json shows all"] if len(lines) > _RESPONSE_LINES else []
        )
        print_line()
        show_text("Last response", "\n".join([*lines[:_RESPONSE_LINES], *cut]))


def _code(attempt: dict[str, Any]) -> str | None:
    return None if attempt["code"] is None else str(attempt["code"])


def _error(attempt: dict[str, Any]) -> str | None:
    return ": ".join(part for part in (attempt["error_class"], attempt["error"]) if part) or None


#: The maximum number of dead letters in memory, and in a row group of Parquet.
_ROWS_IN_MEMORY = 1_000


def _counted(letters: Iterator[DeadLetter], progress: Progress) -> Iterator[DeadLetter]:
    for number, letter in enumerate(letters, 1):
        yield letter
        progress(number, None)


def export_dead_letters(name: str, letters: Iterator[DeadLetter]) -> int:
    """Write complete dead letters to a file, or for `-` as JSON lines to standard output; return how many.

    Raises UserError for an unknown suffix or an existing file, InfrastructureError if the file cannot be written.
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
        # a link, unlike a rename, never overwrites a file that appeared meanwhile
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
    """Return a record with its delivery id as a string."""
    from eventbridge.event.ids import delivery_id_text

    raw = record["delivery_id"]
    return record | {"delivery_id": delivery_id_text(raw) if raw is not None else None}


def _line(letter: DeadLetter) -> str:
    from eventbridge.dead_letters.selection import name_of

    return write_document(plain({"name": name_of(letter.record)} | with_text_id(letter.record)))


def _print_lines(letters: Iterator[DeadLetter]) -> int:
    count = 0
    for count, letter in enumerate(letters, 1):  # noqa: B007  # counted when the loop has ended
        print_line(safe_json(_line(letter)))
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
            while rows := [letter.record for letter in islice(letters, _ROWS_IN_MEMORY)]:
                writer.write_table(pa.Table.from_pylist(rows, schema=DEAD_LETTER))
                count += len(rows)
        file.flush()
        os.fsync(file.fileno())
    return count
