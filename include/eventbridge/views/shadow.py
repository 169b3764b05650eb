"""Compares the shadows of a rule with the targets that they shadow, by payloads and by responses."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow.compute as pc

from eventbridge.delivery.segments import segments
from eventbridge.errors import UserError
from eventbridge.model.batch import Batch
from eventbridge.rules import Target
from eventbridge.rules.find import find_rule
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.time_range import time_range
from eventbridge.store.parquet import parts_of, read_table

NOT_SENT = "not sent"

_DELIVERY = [
    "delivery_id", "rule", "target", "event_id", "event_file", "event_row", "payload", "content_type", "headers",
    "failure",
]  # fmt: skip
_OUTCOME = ["delivery_id", "rule", "attempt", "sent", "outcome", "code", "error_class"]
_SHOWN_BYTES = 500

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Difference:
    """One event whose payload or response differs between a shadow and its target."""

    event_id: str
    what: str  # output | response
    target: str
    shadow: str


@dataclass
class ShadowReport:
    """The comparison of a shadow with its target over some batches; `failed` counts failures of the shadow."""

    shadow: str
    target: str
    since: datetime
    until: datetime
    compared: int = 0
    other_outputs: int = 0
    responded: int = 0  # events for which both deliveries got a response
    other_responses: int = 0
    failed: int = 0
    not_sent: int = 0
    samples: list[Difference] = field(default_factory=list)


def shadow_reports(runtime: Runtime, rule: str, since: str, until: str | None, samples: int) -> list[ShadowReport]:
    """Return a report for each shadow of a rule, over the batches planned in a time range.

    Only deliveries of the same batch are compared, and only first responses, because a delivery to a shadow is not
    retried. Raises NotFoundError for an unknown rule, UserError for a rule without shadows or an invalid time.
    """
    found = find_rule(runtime.rule_set(), rule)
    shadows = [target for target in found.targets.values() if target.shadow_of is not None]
    if not shadows:
        raise UserError(f"no target of rule {rule} is a shadow. Add `shadow_of: TARGET` to one.")
    first, last = time_range(runtime.ledger.now(), since, until)
    reports = [ShadowReport(each.name, str(each.shadow_of), first, last) for each in shadows]
    for batch in runtime.ledger.batches.list_planned_between(first, last):
        if batch.has_route_stage and batch.state in ("settling", "committed") and batch.kept == "all":
            _compare_batch(runtime, batch, rule, shadows, reports, samples)
    return reports


def shadow_document(report: ShadowReport) -> dict[str, object]:
    """Return a report as `eventbridge rules shadow --json` and the API show it."""
    times = {"since": "from", "until": "to"}
    return {times.get(name, name): value for name, value in vars(report).items()}


def _compare_batch(
    runtime: Runtime, batch: Batch, rule: str, shadows: Iterable[Target], reports: list[ShadowReport], samples: int
) -> None:
    responses: dict[bytes, str] | None = None
    for file in runtime.ledger.files.list_for_batch(batch.batch_id, "delivery"):
        if file.path is None:
            continue
        outputs = _outputs(runtime, file.path, rule)
        for report in reports:
            of_target, of_shadow = outputs.get(report.target, {}), outputs.get(report.shadow, {})
            if of_target and of_shadow and responses is None:
                responses = _first_responses(runtime, batch, rule)
            for event_row, shadow in of_shadow.items():
                if event_row in of_target:
                    _compare(report, of_target[event_row], shadow, responses or {}, samples)


class _Output(NamedTuple):
    """The output of one delivery's transform: its hash, for comparison, and its beginning, for display."""

    delivery_id: bytes
    event_id: str
    hash: bytes
    shown: str


def _outputs(runtime: Runtime, path: str, rule: str) -> dict[str, dict[tuple[str, int], _Output]]:
    """Return the outputs of a rule in a delivery file, by target and by the file and row of the event.

    Payloads may be long, so only a few MB of them are in memory at a time.
    """
    found: dict[str, dict[tuple[str, int], _Output]] = {}
    for _, table in parts_of(runtime.store, path, _DELIVERY):
        for row in table.filter(pc.equal(table["rule"], rule)).to_pylist():
            output = _Output(row["delivery_id"], row["event_id"], _hash_of(row), _format_payload(row))
            found.setdefault(row["target"], {})[row["event_file"], row["event_row"]] = output
    return found


def _hash_of(row: Row) -> bytes:
    payload: bytes | None = row["payload"]
    found = hashlib.blake2b(repr((payload is None, row["content_type"], row["headers"], row["failure"])).encode())
    found.update(payload or b"")
    return found.digest()


def _compare(
    report: ShadowReport, target: _Output, shadow: _Output, responses: Mapping[bytes, str], samples: int
) -> None:
    report.compared += 1
    differences = []
    if target.hash != shadow.hash:
        report.other_outputs += 1
        differences.append(Difference(shadow.event_id, "output", target.shown, shadow.shown))
    responded = [responses.get(each.delivery_id, NOT_SENT) for each in (target, shadow)]
    report.not_sent += responded[1] == NOT_SENT
    report.failed += responded[1] != NOT_SENT and not _is_good(responded[1])
    if NOT_SENT not in responded:
        report.responded += 1
        if responded[0] != responded[1]:
            report.other_responses += 1
            differences.append(Difference(shadow.event_id, "response", *responded))
    report.samples += differences[: max(0, samples - len(report.samples))]


def _first_responses(runtime: Runtime, batch: Batch, rule: str) -> dict[bytes, str]:
    """Return the first response in this batch to each sent delivery of a rule."""
    first: dict[bytes, Row] = {}
    for file in segments(runtime, batch.batch_id):
        if file.path is None:
            continue
        table = read_table(runtime.store, file.path, _OUTCOME)
        for row in table.filter(pc.equal(table["rule"], rule)).to_pylist():
            known = first.get(row["delivery_id"])
            if row["sent"] and (known is None or row["attempt"] < known["attempt"]):
                first[row["delivery_id"]] = row
    return {name: _response(row) for name, row in first.items()}


def _response(row: Row) -> str:
    if row["code"] is not None:
        return f"HTTP {row['code']}"
    return str(row["error_class"] or "taken")


def _is_good(response: str) -> bool:
    return response == "taken" or response.startswith("HTTP 2")


def _format_payload(row: Row) -> str:
    if row["failure"] is not None:
        return f"transform_failed: {row['failure']}"
    payload: bytes = row["payload"] or b""
    text = payload[:_SHOWN_BYTES].decode("utf-8", "replace")
    return text if len(payload) <= _SHOWN_BYTES else f"{text}..."
