"""Builds synthetic events and rules to route, for the canary and for compiling code in advance.

This module must not import compiled code, because commands that only read batches import it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa

from eventbridge.rules import Bus, Rule, RuleSet, Transform
from eventbridge.store.schemas import BUFFER
from eventbridge.targets.file.fields import FileFields

_THEN: Final = datetime(2026, 1, 1, tzinfo=UTC)


def own_event(name: str, event_id: str, body: bytes) -> pa.Table:
    """Return an event of type `name` on the bus `name` as buffer would land it: a table with one row of the BUFFER
    schema."""
    row = {
        "topic": name,
        "broker": "",
        "partition_id": 0,
        "offset": 0,
        "message_id": name,
        "published_at": _THEN,
        "arrived_at": _THEN,
        "status": "valid",
        "event_id": event_id,
        "source": f"/{name}",
        "type": name,
        "body": body,
    }
    return pa.Table.from_pylist([row], schema=BUFFER)


def own_rules(name: str, pattern: dict[str, Any], transforms: Mapping[str, Transform]) -> RuleSet:
    """Return a rule set with one rule, on the bus `name`, that has a file target for each transform.

    Nothing is ever delivered.
    """
    targets = {
        target: FileFields(name=target, path=f"{name}.jsonl", transform=transform)
        for target, transform in transforms.items()
    }
    rule = Rule(name=name, bus=name, runner=name, pattern=pattern, targets=targets)
    return RuleSet(buses={name: Bus(name=name)}, rules={name: rule})
