"""Defines the bus `eventbridge`, to which EventBridge publishes operational events."""

from __future__ import annotations

from typing import Final

from eventbridge.rules.model import Bus, as_source

#: The bus always exists. Its only partition keeps the events in order. Rule files may give it another source.
OPERATIONS_BUS: Final = Bus(name="eventbridge", source=as_source({"type": "embedded", "partitions": 1}))
