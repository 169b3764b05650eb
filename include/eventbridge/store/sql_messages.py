"""Defines the messages on the pipes of the process that queries DuckDB, and the limits of one query."""

from __future__ import annotations

import struct
from typing import Final

#: The maximum wall-clock time for one message to DuckDB.
SECONDS: Final = 30.0
#: The memory limit of tables and intermediate results; DuckDB may not write to disk.
TABLE_MEMORY: Final = "1GB"
#: The limit of the address space, for Python, DuckDB with its tables, and 1 GB of allocations that DuckDB does not
#: count.
ADDRESS_BYTES: Final = 2_560 << 20

#: The kind of a message, and the length of its body.
HEAD: Final = struct.Struct(">cQ")
#: The length of the SQL in a message FILL; the SQL follows, and then a table as an Arrow stream.
SQL_LENGTH: Final = struct.Struct(">I")
#: Messages to the process: begin with an empty database, fill a table, query (JSON).
BEGIN, FILL, ASK = b"B", b"F", b"A"
#: Messages from the process: done, a table as an Arrow stream, DuckDB's error message, out of memory.
DONE, TABLE, WRONG, MEMORY = b"D", b"T", b"W", b"M"
