"""Compares the reconciliation with the targets' own data: the receiver's record, and the lines in files."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from demo.tally import Tally
from eventbridge.rules import RuleSet, Target
from eventbridge.targets.file.fields import FileFields
from eventbridge.targets.http.fields import HttpFields


@dataclass
class PathRecord:
    """The receiver's record of one path: how often it accepted each webhook-id, and all ids that it saw."""

    accepted: Counter[str] = field(default_factory=Counter)
    seen: set[str] = field(default_factory=set)


def read_record(record: Path) -> dict[str, PathRecord]:
    """Return the receiver's record by path."""
    found: dict[str, PathRecord] = defaultdict(PathRecord)
    with record.open() as lines:
        for line in lines:
            request = json.loads(line)
            received = found[request["path"]]
            received.seen.add(request["webhook_id"])
            if request["status"] is not None and 200 <= request["status"] < 300:
                received.accepted[request["webhook_id"]] += 1
    return found


def compare(
    rules: RuleSet, tallies: Mapping[tuple[str, str], Tally], record: Mapping[str, PathRecord], files: Path
) -> Iterator[tuple[str, str]]:
    """Yield (name, difference) for each HTTP or file target; "" if it has exactly the deliveries of the reconciliation.

    `files` is the folder to which the paths of file targets are relative. A duplicate is not a difference: delivery is
    at least once, and a duplicate has the same webhook-id.
    """
    for rule in rules.enabled().values():
        for target in rule.targets.values():
            found = tallies.get((rule.name, target.name), Tally())
            name = f"{rule.name}/{target.name}"
            if isinstance(target, FileFields):
                yield name, _file(found, files / target.path)
            elif isinstance(target, HttpFields):
                yield name, _http(found, record.get(receiver_path(target), PathRecord()))


def receiver_path(target: Target) -> str:
    """Return the receiver's path of a target; empty for a file."""
    return urlsplit(target.url).path if isinstance(target, HttpFields) else ""


def duplicates(record: Mapping[str, PathRecord]) -> int:
    """Return how many requests the receiver accepted beyond one for each webhook-id and path."""
    return sum(received.accepted.total() - len(received.accepted) for received in record.values())


def _http(found: Tally, received: PathRecord) -> str:
    parts = [
        _difference(
            "delivered according to the reconciliation, but not accepted by the receiver",
            found.delivered - set(received.accepted),
        ),
        _difference(
            "accepted by the receiver, but not delivered according to the reconciliation",
            set(received.accepted) - found.delivered,
        ),
    ]
    return "; ".join(part for part in parts if part)


def _file(found: Tally, path: Path) -> str:
    lines = path.read_bytes().count(b"\n") if path.exists() else 0
    return "" if lines == len(found.delivered) else f"{len(found.delivered):,} delivered, {lines:,} lines in {path}"


def _difference(what: str, ids: set[str]) -> str:
    return f"{len(ids):,} {what}, such as {min(ids)}" if ids else ""
