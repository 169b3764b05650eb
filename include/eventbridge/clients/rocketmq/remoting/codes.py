"""The protocol's codes of requests and responses."""

from __future__ import annotations

from typing import Final

PULL: Final = 11
QUERY_OFFSET: Final = 14
UPDATE_OFFSET: Final = 15
SEARCH_OFFSET: Final = 29
MAX_OFFSET: Final = 30
MIN_OFFSET: Final = 31
HEARTBEAT: Final = 34
ROUTE: Final = 105
SEND: Final = 310
SEND_BATCH: Final = 320

POP: Final = 200_050
ACKNOWLEDGE: Final = 200_051
CHANGE_INVISIBLE_TIME: Final = 200_053

SUCCESS: Final = 0
BUSY: Final = 2
MESSAGE_ILLEGAL: Final = 13
#: Responses to a pull without messages: there is none at this offset, continue at the returned offset, or the offset is
#: not in the queue.
NOT_FOUND: Final = 19
AGAIN: Final = 20
MOVED: Final = 21
NEVER_COMMITTED: Final = 22
NO_GROUP: Final = 26
#: The response to a receipt whose message the broker no longer has.
NO_MESSAGE: Final = 208
#: Responses to a pop without messages.
POLLING_FULL: Final = 209
POLLING_TIMEOUT: Final = 210
