"""The bus `eventbridge`, to which EventBridge publishes operational events."""

from __future__ import annotations

from typing import Final

from eventbridge.rules.model import Bus, as_source

#: It always exists, and rules may use it; one partition keeps order. Rule files may define another source for it.
OPERATIONS_BUS: Final = Bus(name="eventbridge", source=as_source({"type": "embedded", "partitions": 1}))
