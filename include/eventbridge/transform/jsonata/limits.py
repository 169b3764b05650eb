"""The limits of one evaluation, and the format of requests and responses on the pipes; shared by both sides."""

from __future__ import annotations

import struct
from typing import Final

from eventbridge.transform.rendered import MAXIMUM_BYTES

#: CPU time of one evaluation: not time on the clock, so that a busy machine makes no dead letters.
CPU_SECONDS: Final = 1.0
#: Address space of the process that evaluates, Python and the library included.
MEMORY_BYTES: Final = 512 << 20
#: The largest result, as JSON.
RESULT_BYTES: Final = MAXIMUM_BYTES

#: Lengths of expression, scope (a JSON list) and event, which follow.
REQUEST: Final = struct.Struct(">III")
#: A status, the CPU seconds of the evaluation, the length of the JSON or message that follows.
RESPONSE: Final = struct.Struct(">BdI")

VALUE, UNDEFINED, FAILED, EXHAUSTED = range(4)
