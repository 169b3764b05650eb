"""How questions and responses look on the pipes of the process that asks DuckDB, and what one question may take."""

from __future__ import annotations

import struct
from typing import Final

#: Time on the clock that DuckDB has for one message.
SECONDS: Final = 30.0
#: What tables and intermediate results may take; they are in memory, as DuckDB may write to no disk.
TABLE_MEMORY: Final = "1GB"
#: The address space: Python, DuckDB with its tables, and 1 GB for what DuckDB allocates without counting it.
ADDRESS_BYTES: Final = 2_560 << 20

#: Kind of a message, and length of what follows.
HEAD: Final = struct.Struct(">cQ")
#: Length of the SQL that follows in FILL, before a table as Arrow's stream.
SQL_LENGTH: Final = struct.Struct(">I")
#: To the process: begin with an empty database, fill a table, ask (JSON).
BEGIN, FILL, ASK = b"B", b"F", b"A"
#: From it: done, a table as Arrow's stream, DuckDB's error as text, no more memory.
DONE, TABLE, WRONG, MEMORY = b"D", b"T", b"W", b"M"
