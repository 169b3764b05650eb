"""The messages on the pipes of the process that queries DuckDB, and the limits of one query."""

from __future__ import annotations

import struct
from typing import Final

#: Wall-clock time that DuckDB has for one message.
SECONDS: Final = 30.0
#: Memory limit of tables and intermediate results; DuckDB may not write to disk.
TABLE_MEMORY: Final = "1GB"
#: The address space: Python, DuckDB with its tables, and 1 GB for allocations that DuckDB does not count.
ADDRESS_BYTES: Final = 2_560 << 20

#: Kind of a message, and length of its body.
HEAD: Final = struct.Struct(">cQ")
#: Length of the SQL that follows in FILL, before a table as Arrow's stream.
SQL_LENGTH: Final = struct.Struct(">I")
#: To the process: begin with an empty database, fill a table, query (JSON).
BEGIN, FILL, ASK = b"B", b"F", b"A"
#: Messages from the process: done, a table as Arrow's stream, DuckDB's error as text, out of memory.
DONE, TABLE, WRONG, MEMORY = b"D", b"T", b"W", b"M"
