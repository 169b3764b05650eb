"""The limits of one evaluation, and the format of requests and responses on the pipes; shared by both sides."""

from __future__ import annotations

import struct
from typing import Final

from eventbridge.transform.rendered import MAXIMUM_BYTES

#: CPU time of one evaluation: not elapsed time, so that a busy machine causes no dead letters.
CPU_SECONDS: Final = 1.0
#: Address space of the evaluating process, including Python and the library.
MEMORY_BYTES: Final = 512 << 20
#: The largest result, as JSON.
RESULT_BYTES: Final = MAXIMUM_BYTES

#: The lengths of expression, scope (a JSON list) and event, which follow in this order.
REQUEST: Final = struct.Struct(">III")
#: The status, the CPU seconds of the evaluation, and the length of the JSON or message that follows.
RESPONSE: Final = struct.Struct(">BdI")

VALUE, UNDEFINED, FAILED, EXHAUSTED = range(4)
