"""Defines the messages on the pipes of the process that queries DuckDB, and the limits of one query."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

#: The maximum wall-clock time for one message to DuckDB.
SECONDS: Final = 30.0


@dataclass(frozen=True)
class Memory:
    """The memory of a process.

    `tables` is DuckDB's limit for tables and intermediate results; DuckDB may not write to disk. `address_bytes` is the
    kernel's limit of the address space, for Python, DuckDB with its tables, and allocations that DuckDB does not count.
    If `compressed`, tables are compressed at each CHECKPOINT, so that they take a fraction of the memory.
    """

    tables: str
    address_bytes: int
    compressed: bool = False


#: For conditions of servers and runs, of which several may be evaluated at the same time.
SMALL: Final = Memory("1GB", 2_560 << 20)
#: For queries over a time range, which one user runs in a command. Half of the address space is reserved, not used.
LARGE: Final = Memory("2GB", 6 << 30, compressed=True)

#: The kind of a message, and the length of its body.
HEAD: Final = struct.Struct(">cQ")
#: The length of the SQL in a message FILL; the SQL follows, and then a table as an Arrow stream.
SQL_LENGTH: Final = struct.Struct(">I")
#: Messages to the process: begin with an empty database, fill a table, query (JSON).
BEGIN, FILL, ASK = b"B", b"F", b"A"
#: Messages from the process: done, a table as an Arrow stream, DuckDB's error message, out of memory.
DONE, TABLE, WRONG, MEMORY = b"D", b"T", b"W", b"M"
