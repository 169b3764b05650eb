"""Spans for Iceberg targets, and processes that send them at the same time; imports little, as each of these does."""

from __future__ import annotations

import json
import multiprocessing
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from eventbridge.config.connection import Connection
from eventbridge.config.target_locations import TargetLocations
from eventbridge.rules.load import load_rules
from eventbridge.targets.open import open_target
from eventbridge.targets.protocol import DeliverySpan, SpanTarget

_processes = multiprocessing.get_context("forkserver")  # with what pipeline.dying loads in it


def now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


def opened(
    connection: Connection,
    folder: Path,
    fields: str = "",
    table: str = "sales.orders",
    clock: Callable[[], datetime] = now,
) -> SpanTarget:
    """Open the target of a rule file."""
    (folder / "own-rules").mkdir(exist_ok=True)
    (folder / "own-rules" / "r.yaml").write_text(
        "buses: {b: {source: {type: embedded}}}\n"
        "rules: {r: {bus: b, pattern: {}, targets: {rows: {type: iceberg, connection: lake, "
        f"table: {table}{fields and ', '}{fields}}}}}}}}}\n"
    )
    target = load_rules(folder / "own-rules").rules["r"].destinations["rows"]
    found = open_target(
        "r", target, lambda _: connection, clock, (), TargetLocations((), (f"{folder}/own/", "s3://own-bucket/store/"))
    )
    assert isinstance(found, SpanTarget)
    return found


def span_of(*payloads: object, name: str = "", at: datetime | None = None) -> DeliverySpan:
    """Make a span of payloads, which are bytes or will be JSON."""
    bodies = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in payloads]
    ids = pa.array([uuid.uuid4().bytes for _ in bodies], pa.binary(16))
    return DeliverySpan(name or str(uuid.uuid4()), at or now(), ids, pa.array(bodies, pa.binary()))


def send_at_once(
    connection: Connection, work: Sequence[tuple[Path, Sequence[DeliverySpan]]]
) -> list[list[tuple[bool, str | None]]]:
    """Send spans in processes that begin together, each with a folder of its own; return the responses of each."""
    begins, ends = _processes.Barrier(len(work)), _processes.Queue()
    running = [
        _processes.Process(target=_send, args=(connection, folder, spans, begins, ends), daemon=True)
        for folder, spans in work
    ]
    for process in running:
        process.start()
    found = [ends.get(timeout=120) for _ in running]
    for process in running:
        process.join(30)
    return found


def _send(connection: Connection, folder: Path, spans: Sequence[DeliverySpan], begins: Any, ends: Any) -> None:
    with closing(opened(connection, folder)) as target:
        begins.wait(60)
        found = [target.deliver_span(each, now() + timedelta(seconds=60)) for each in spans]
    ends.put([(False, "not sent") if each is None else (each.response.accepted, each.response.error) for each in found])
