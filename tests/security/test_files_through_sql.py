"""SQL of users opens no file: neither of the host nor of the folder that the server was started in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: Asks about one event, in the folder that it is started in.
ASK = """
import sys
import pyarrow as pa
from eventbridge.errors import UserError
from eventbridge.store.queries import COLUMNS, rows_where

event = pa.Table.from_pylist([dict.fromkeys(COLUMNS.names)], schema=COLUMNS)
for condition in sys.argv[1:]:
    try:
        print(rows_where(event, condition))
    except UserError as error:
        print(str(error).replace(chr(10), " "))
"""

READING = [
    "(SELECT content FROM read_text('{}')) = 'hush'",
    "(SELECT content FROM read_blob('{}')) = 'hush'::BLOB",
    "(SELECT count(*) FROM glob('{}')) = 1",
    "(SELECT count(*) FROM read_csv('{}', header = false)) = 1",
    "(SELECT count(*) FROM '{}') = 1",
    "(SELECT count(*) FROM query('SELECT * FROM read_text(''{}'')')) = 1",
    "(SELECT count(*) FROM json_execute_serialized_sql(json_serialize_sql('SELECT * FROM read_text(''{}'')'))) = 1",
]


def responses(folder: Path, *conditions: str) -> list[str]:
    """Return the response to each condition, in a process that is started in a folder."""
    asked = [sys.executable, "-c", ASK, *conditions]
    return subprocess.run(
        asked, cwd=folder, capture_output=True, text=True, timeout=120, check=True
    ).stdout.splitlines()


@pytest.mark.parametrize("path_given", ["secret.txt", ".tmp/secret.txt", ".tmp/../secret.txt", ".tmp/link"])
def test_a_condition_reads_no_file(tmp_path: Path, path_given: str) -> None:
    """DuckDB lets SQL read its folder of temporary files, so it has none."""
    (tmp_path / ".tmp").mkdir()
    for name in ("secret.txt", ".tmp/secret.txt"):
        (tmp_path / name).write_text("hush")
    (tmp_path / ".tmp" / "link").symlink_to(tmp_path / "secret.txt")

    asked = [each.format(path) for each in READING for path in (path_given, str(tmp_path / path_given))]
    found = responses(tmp_path, *asked)

    assert len(found) == len(asked)
    assert [each for each in found if "is not an SQL condition" not in each] == []


def test_a_condition_that_needs_more_memory_writes_no_file(tmp_path: Path) -> None:
    """What does not fit is refused: the disk of the server is no memory of a query."""
    set_to = "current_setting('temp_directory') = '' OR error(current_setting('temp_directory'))"
    large = "(SELECT count(*) FROM (SELECT i, hash(i) AS h FROM range(100000000) t(i) ORDER BY h LIMIT 99999999)) > 0"

    found = responses(tmp_path, set_to, large)

    assert found[0] == "[ True]"
    assert "takes more than 1GB of memory" in found[1]
    assert list(tmp_path.iterdir()) == []
