"""Fingerprints, by rule and target, of the deliveries in files of a batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from eventbridge.delivery.queue_copies import read_deliveries
from eventbridge.event.fingerprints import fingerprints_by
from eventbridge.event.ids import Fingerprint
from eventbridge.model import row_vectors
from eventbridge.model.pending import PendingDeliveries
from eventbridge.model.row_vectors import Rows
from eventbridge.policy.reconciliation import Fingerprints
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.columns import codes_of, ids_of

ID_COLUMNS = ["delivery_id", "rule", "target"]


def by_target(table: pa.Table) -> Fingerprints:
    """Return the fingerprints of rows with ID_COLUMNS, by `<rule>/<target>`."""
    rule_of, rules = codes_of(table["rule"])
    target_of, targets = codes_of(table["target"])
    found = fingerprints_by(rule_of * len(targets) + target_of, ids_of(table["delivery_id"]))
    return {f"{rules[pair // len(targets)]}/{targets[pair % len(targets)]}": each for pair, each in found.items()}


def of_pending(runtime: Runtime, pending: Iterable[PendingDeliveries]) -> Fingerprints:
    """Return the fingerprints of pending rows, with delivery ids read from their files, each file once."""
    by_file: dict[str, list[tuple[str, Rows]]] = defaultdict(list)
    for each in pending:
        for file, rows in each.files:
            by_file[file].append((f"{each.rule}/{each.target}", row_vectors.decode(rows)))
    return add(_of_rows(runtime, file, rows) for file, rows in by_file.items())


def _of_rows(runtime: Runtime, file: str, named: list[tuple[str, Rows]]) -> Fingerprints:
    targets = {target: number for number, target in enumerate(dict.fromkeys(target for target, _ in named))}
    # A row that is named twice counts twice: a doubled delivery must show in the reconciliation.
    rows = np.concatenate([its_rows for _, its_rows in named])
    groups = np.repeat([targets[target] for target, _ in named], [len(its_rows) for _, its_rows in named])
    wanted = np.unique(rows)
    table = read_deliveries(runtime.store, file, row_vectors.encode(wanted), ["delivery_id"])
    found = fingerprints_by(groups, ids_of(table["delivery_id"])[np.searchsorted(wanted, rows)])
    return {target: found[number] for target, number in targets.items() if number in found}


def add(parts: Iterable[Fingerprints]) -> dict[str, Fingerprint]:
    """Return the sums of fingerprints with the same key."""
    total: dict[str, Fingerprint] = {}
    for part in parts:
        for key, value in part.items():
            total[key] = total[key] + value if key in total else value
    return total
