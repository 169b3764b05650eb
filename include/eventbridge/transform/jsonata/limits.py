"""Defines the limits of one evaluation and the formats of requests and responses, which both processes share."""

from __future__ import annotations

import struct
from typing import Final

from eventbridge.transform.rendered import MAXIMUM_BYTES

#: The maximum CPU time of one evaluation, in seconds. A limit of elapsed time would cause dead letters on a busy
#: machine.
CPU_SECONDS: Final = 1.0
#: The maximum address space of the evaluating process, including Python and the library.
MEMORY_BYTES: Final = 512 << 20
#: The maximum size of a result as JSON.
RESULT_BYTES: Final = MAXIMUM_BYTES

#: The lengths of expression, scope (a JSON list) and event, which follow in this order.
REQUEST: Final = struct.Struct(">III")
#: The status, the CPU seconds of the evaluation, and the length of the JSON or message that follows.
RESPONSE: Final = struct.Struct(">BdI")

VALUE, UNDEFINED, FAILED, EXHAUSTED = range(4)
