"""The bus `eventbridge`, to which EventBridge publishes operational events."""

from __future__ import annotations

from typing import Final

from eventbridge.rules.model import Bus, as_source

#: The bus always exists, and rules may use it; its one partition keeps the order. Rule files may define another source
#: for it.
OPERATIONS_BUS: Final = Bus(name="eventbridge", source=as_source({"type": "embedded", "partitions": 1}))
