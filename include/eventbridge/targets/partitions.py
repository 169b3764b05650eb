"""Finds rows that would be in a partition whose folder cannot be made; one of them fails the append of all rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from eventbridge.targets.arrow_rows import ConvertedRows, is_text

#: The maximum length of the name of a folder, `column=value` with all but letters and digits percent-encoded.
_MAX_NAME: Final = 255
#: The maximum length of the texts in all those of a row; a key in S3 has at most 1,024 bytes.
_MAX_PATH: Final = 640


def reject_long_partitions(rows: ConvertedRows, columns: Mapping[str, str]) -> ConvertedRows:
    """Return the rows without those whose texts make a folder name too long.

    `columns` are those whose values are in the names of folders, with what is before the value there.
    """
    found: dict[int, str] = {}
    lengths = [0] * rows.table.num_rows
    for name, before in columns.items():
        if name not in rows.table.column_names or not is_text(rows.table.schema.field(name).type):
            continue
        known: dict[str | None, int] = {None: 0}
        for number, value in enumerate(rows.table[name].to_pylist()):
            if value not in known:
                known[value] = len(quote(before, safe="")) + 1 + len(quote(value, safe=""))
            lengths[number] += known[value]
            if known[value] > _MAX_NAME or lengths[number] > _MAX_PATH:
                found.setdefault(
                    number, f"the value for {name!r} is too long for the name of a folder, as that of a partition"
                )
    return rows.without(found)
