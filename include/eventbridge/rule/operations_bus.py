"""The bus `eventbridge`, on which the product publishes operational events."""

from __future__ import annotations

from typing import Final

from eventbridge.rule.model import Bus, as_source

#: It is always there, and a rule may name it; one partition keeps order. Rule files may say that it is elsewhere.
OPERATIONS_BUS: Final = Bus(name="eventbridge", source=as_source({"type": "embedded", "partitions": 1}))
