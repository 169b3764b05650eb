"""Builds operational events about targets, deliveries and rules, as CloudEvents for the bus `eventbridge`.

Their ids are hashes of what they report, so an event that is published again has the same id.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from eventbridge.model.batch import Batch
from eventbridge.model.event_schema import SchemaChange, SchemaChangeKind
from eventbridge.model.pending import RunningLate
from eventbridge.model.quality import QualityRecord
from eventbridge.model.rule_state import EXPECTATION_HOLD, ExpectationHold, TargetState, TargetStatus
from eventbridge.model.storage import IngestionStop
from eventbridge.policy.quality import failure_message

OperationType = Literal[
    "target.degraded",
    "target.recovered",
    "target.disabled",
    "delivery.dead_lettered",
    "delivery.late",
    "batch.late",
    "rule.on_hold",
    "rules.invalid",
    "quality.checked",
    "quality.failed",
    "ingestion.stopped",
    "ingestion.resumed",
    "schema.discovered",
    "schema.field_lost",
    "schema.field_changed",
]

#: The event type for each kind of schema change.
_OF_SCHEMAS: Mapping[SchemaChangeKind, OperationType] = {
    "discovered": "schema.discovered",
    "field_lost": "schema.field_lost",
    "field_changed": "schema.field_changed",
}

#: The maximum number of rules that one event about a schema names.
_RULES_NAMED = 50

#: The maximum number of delivery ids in one event about dead letters.
_IDS_NAMED = 10

_UNWELL: tuple[TargetState, ...] = ("degraded", "half-open")


@dataclass(frozen=True)
class OperationalEvent:
    """One operational event; `subject` names what it reports on, such as `<rule>/<target>`, a rule or a bus."""

    event_id: str
    type: OperationType
    subject: str
    time: datetime
    data: Mapping[str, Any]

    def body(self) -> bytes:
        """Return the CloudEvent in structured JSON."""
        event = {
            "specversion": "1.0",
            "id": self.event_id,
            "source": "/eventbridge",
            "type": self.type,
            "subject": self.subject,
            "time": self.time.isoformat(),
            "datacontenttype": "application/json",
            "data": dict(self.data),
        }
        return json.dumps(event).encode()


def target_event(old: TargetStatus, new: TargetStatus) -> OperationalEvent | None:
    """Return the event for a change of a target's status; None for a change that concerns only its breaker."""
    kind: OperationType | None = None
    if new.state == "disabled" and old.state != "disabled":
        kind = "target.disabled"
    elif new.state in _UNWELL and old.state not in _UNWELL:
        kind = "target.degraded"
    elif new.state == "ok" and old.state != "ok":
        kind = "target.recovered"
    if kind is None:
        return None
    data = {"rule": new.rule, "target": new.target, "reason": new.reason, "before": old.state}
    if kind == "target.recovered":
        data["since"] = old.since.isoformat()  # when the target became unhealthy
    event_id = _id(kind, new.rule, new.target, new.since.isoformat())
    return OperationalEvent(event_id, kind, f"{new.rule}/{new.target}", new.since, data)


def dead_letters_event(
    batch_id: str, bus: str, rule: str | None, target: str | None, reason: str, names: Sequence[str], time: datetime
) -> OperationalEvent:
    """Return the event for the dead letters of a batch with one rule, target and reason.

    `names` are the delivery ids; the event lists the first ones. If the events never became deliveries, `rule` and
    `target` are None and `names` are the positions of the events.
    """
    data = {
        "rule": rule,
        "target": target,
        "bus": bus,
        "reason": reason,
        "count": len(names),
        "first": sorted(names)[:_IDS_NAMED],
        "batch_id": batch_id,
    }
    event_id = _id("delivery.dead_lettered", batch_id, bus, rule or "", target or "", reason)
    subject = f"{rule}/{target}" if rule is not None else bus
    return OperationalEvent(event_id, "delivery.dead_lettered", subject, time, data)


def running_late_event(
    rule: str, target: str, within_seconds: float, late: RunningLate, time: datetime
) -> OperationalEvent:
    """Return the event for deliveries that are still pending when 80 % of their `deliver_within` has passed."""
    data = {
        "rule": rule,
        "target": target,
        "count": late.count,
        "published_at": late.published_at.isoformat(),
        "deliver_by": (late.published_at + timedelta(seconds=within_seconds)).isoformat(),
        "waits_for": list(late.waits_for),
    }
    event_id = _id("delivery.late", rule, target, time.isoformat())
    return OperationalEvent(event_id, "delivery.late", f"{rule}/{target}", time, data)


def late_batch_event(batch: Batch, seconds: float) -> OperationalEvent:
    """Return the event for a batch that is not committed `seconds` after it was planned."""
    data = {
        "batch_id": batch.batch_id,
        "kind": batch.kind,
        "runner": batch.runner,
        "state": batch.state,
        "planned_at": batch.planned_at.isoformat(),
        "late_after_seconds": seconds,
    }
    time = batch.planned_at + timedelta(seconds=seconds)
    return OperationalEvent(_id("batch.late", batch.batch_id), "batch.late", batch.runner or batch.kind, time, data)


def version_on_hold_event(rule: str, version: str, reason: str, time: datetime) -> OperationalEvent:
    """Return the event for a rule version that is put on hold. Each new hold has an event of its own."""
    data = {"rule": rule, "reason": reason, "on_hold_at": version}
    return OperationalEvent(_id("rule.on_hold", rule, version, time.isoformat()), "rule.on_hold", rule, time, data)


def expectation_hold_event(hold: ExpectationHold) -> OperationalEvent:
    """Return the event for a rule whose matched events violated its expectation. Each new hold has an event of its
    own."""
    data = {"rule": hold.rule, "reason": hold.reason, "on_hold_at": hold.found_in}
    event_id = _id("rule.on_hold", hold.rule, EXPECTATION_HOLD, hold.found_in, hold.since.isoformat())
    return OperationalEvent(event_id, "rule.on_hold", hold.rule, hold.since, data)


def quality_check_event(record: QualityRecord) -> OperationalEvent:
    """Return the event for the check of an hour: `quality.failed` if any measure failed, else `quality.checked`."""
    hour = record.hour.isoformat()
    data = {
        "hour": hour,
        "batches": record.batches,
        "open_batches": record.open_batches,
        "measures": len(record.measures),
        "failures": len(record.failures),
        "first": [failure_message(each) for each in record.failures[:_IDS_NAMED]],
        "page": record.page,
    }
    kind: OperationType = "quality.failed" if record.failures else "quality.checked"
    return OperationalEvent(_id("quality", hour), kind, hour, record.checked_at, data)


def delivery_hold_event(
    rule: str, target: str, delivery: str, position: str, reason: str, time: datetime, batch_id: str
) -> OperationalEvent:
    """Return the event for a rule that a delivery blocks because it failed for good; a batch found this at `time`.

    `position` is the position of the delivery's event on the bus, `<topic>/<partition>/<offset>`.
    """
    data = {
        "rule": rule,
        "reason": reason,
        "on_hold_at": delivery,
        "target": target,
        "position": position,
        "batch_id": batch_id,
    }
    return OperationalEvent(_id("rule.on_hold", rule, delivery, batch_id), "rule.on_hold", rule, time, data)


def rule_errors_event(errors: Sequence[str], rule_set: str, time: datetime) -> OperationalEvent:
    """Return the event for rule files with `errors`, while the rule set `rule_set` stays in force."""
    data = {"count": len(errors), "first": list(errors[:_IDS_NAMED]), "in_force": rule_set}
    return OperationalEvent(_id("rules.invalid", time.isoformat(), *errors), "rules.invalid", "rules", time, data)


def ingestion_stopped_event(stop: IngestionStop) -> OperationalEvent:
    """Return the event for an ingestion stop, during which no runner plans a batch; its subject is `ingestion`."""
    event_id = _id("ingestion.stopped", stop.since.isoformat())
    return OperationalEvent(
        event_id, "ingestion.stopped", "ingestion", stop.since, {"reason": stop.reason, "cause": stop.cause}
    )


def ingestion_resumed_event(stop: IngestionStop, time: datetime) -> OperationalEvent:
    """Return the event for ingestion that resumes after a stop."""
    data = {"reason": stop.reason, "cause": stop.cause, "since": stop.since.isoformat()}
    return OperationalEvent(
        _id("ingestion.resumed", stop.since.isoformat()), "ingestion.resumed", "ingestion", time, data
    )


def schema_event(change: SchemaChange, rules: Sequence[str]) -> OperationalEvent:
    """Return the event for a new event type, or for a field that is lost or has a new JSON type.

    `rules` are the rules that use the type or field; the event names the first ones. The subject of the event is the
    type.
    """
    data: dict[str, Any] = {"bus": change.bus, "type": change.type}
    if change.path:
        data |= {"field": change.path, "before": list(change.before), "now": list(change.now)}
    data |= {"rules": list(rules[:_RULES_NAMED]), "rules_count": len(rules)}
    kind = _OF_SCHEMAS[change.kind]
    # A type is discovered only once. A field may be lost again in a later batch, which must have an event of its own.
    when = () if change.kind == "discovered" else (change.path, change.at.isoformat())
    return OperationalEvent(_id(kind, change.bus, change.type, *when), kind, change.type, change.at, data)


def _id(*parts: str) -> str:
    text = json.dumps(parts)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
