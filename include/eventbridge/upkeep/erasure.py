"""Erases events: rewrites the rows of the store and the messages of the embedded buses that have their data.

A row keeps its place, its delivery id, its status and its outcome, by which the audit counts; it loses the event, the
request, the response, the subject and the id. The files are rewritten in an order in which those that identify the
events come last, so that an erasure that dies is completed by the same command. What cannot be erased is refused before
anything is changed, such as events that are still to be delivered.
"""

from __future__ import annotations

import json
import uuid
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eventbridge.errors import NotFoundError, UserError
from eventbridge.event.ids import delivery_id_text
from eventbridge.event.json_document import write_document
from eventbridge.model import rowset
from eventbridge.model.erasure import ERASED_BODY, ERASED_ID, ERASED_SOURCE, ERASED_TEXT, ERASED_TYPE, Erasure
from eventbridge.model.partition import Partition
from eventbridge.model.pending import DeferredMatch, PendingDeliveries
from eventbridge.processes import check_cancelled
from eventbridge.runtime.identity import refuse_lost_ledger
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.protocol import ErasableLog
from eventbridge.store import layout
from eventbridge.store.columns import flag_column
from eventbridge.store.compacted import read_list
from eventbridge.store.parquet import read_table, write_table
from eventbridge.upkeep.compaction import remove_from_larger

#: The topmost folders of files with events or deliveries, in the order in which an erasure rewrites their files.
_FOLDERS: Final = ("outcomes", "settlements", "deliveries", "dead_letters", "buffer")

#: The values that replace those of an erased row; None is for columns that may be null. A null stays null.
_REPLACED: Final[Mapping[str, Mapping[str, Any]]] = {
    "buffer": {
        "event_id": ERASED_ID,
        "source": ERASED_SOURCE,
        "type": ERASED_TYPE,
        "body": ERASED_BODY,
        "reason": ERASED_TEXT,
    },
    "deliveries": {
        "event_id": ERASED_ID,
        "source": ERASED_SOURCE,
        "order_key": None,
        "payload": b"",
        "headers": None,
        "failure": ERASED_TEXT,
    },
    "outcomes": {"error": ERASED_TEXT, "response_head": None},
    "settlements": {"detail": ERASED_TEXT},
    "dead_letters": {
        "event_id": ERASED_ID,
        "source": ERASED_SOURCE,
        "event": ERASED_BODY,
        "request": b"",
        "request_headers": None,
        "detail": ERASED_TEXT,
    },
}
_Mask = npt.NDArray[np.bool_]
_Identity = tuple[str, str, str]  # bus, source, id
#: The files whose rows a file has, with the first row of each, in order.
_Parts = list[tuple[int, str]]


@dataclass(frozen=True)
class ErasureSelection:
    """The events to erase: those with an id, or with a subject; on one bus, or on all."""

    event_id: str | None = None
    subject: str | None = None
    bus: str | None = None

    def __post_init__(self) -> None:
        if (self.event_id is None) == (self.subject is None):
            raise UserError("name the events to erase by --id or by --subject, and not by both")
        if not (self.event_id or self.subject):
            raise UserError("--id and --subject must not be empty")

    def names(self, body: bytes) -> bool:
        """Return whether the event with this body is to be erased; a body that is not JSON never is."""
        if body == ERASED_BODY:
            return False
        name = "subject" if self.subject is not None else "id"
        wanted = self.subject if self.subject is not None else self.event_id
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            return False
        return isinstance(document, dict) and document.get(name) == wanted


@dataclass
class _Found:
    """What has the data of the events: rows by path, messages by bus and partition."""

    identities: set[_Identity] = field(default_factory=set)
    rows: dict[str, set[int]] = field(default_factory=dict)
    larger: dict[str, set[str]] = field(default_factory=dict)  # the compacted files of `rows`, by larger file
    delivery_ids: set[bytes] = field(default_factory=set)
    targets: set[str] = field(default_factory=set)
    messages: dict[str, dict[Partition, list[int]]] = field(default_factory=dict)

    def add(self, path: str, parts: _Parts, mask: _Mask) -> None:
        """Add the masked rows of a file, or of the compacted files that are its parts."""
        starts = [start for start, _ in parts]
        for row in np.flatnonzero(mask).tolist():
            start, name = parts[bisect_right(starts, row) - 1]
            self.rows.setdefault(name, set()).add(row - start)
            if name != path:
                self.larger.setdefault(path, set()).add(name)


def erase(runtime: Runtime, selection: ErasureSelection, *, by: str, dry_run: bool = False) -> Erasure:
    """Erase the selected events from the store and the embedded buses, and return what was changed.

    The audit log and the record in the store name `by`, who erases, and neither the subject nor the id. With `dry_run`,
    nothing is changed. Raises NotFoundError if there is no such event, and UserError, before anything is changed, if an
    event is still to be delivered, or its data is in a file that cannot be rewritten.
    """
    if runtime.settings.ledger_url.startswith("postgres"):
        raise UserError("the ledger is in PostgreSQL, which keeps old rows: events cannot be erased from it yet")
    refuse_lost_ledger(runtime, always=True)
    if dry_run:
        return _result(runtime, _find(runtime, selection), dry_run)
    at = runtime.ledger.now()
    if not runtime.ledger.retention.begin_erasure(at):
        raise UserError(
            "a day is being compacted: nothing was erased. Run `eventbridge maintain` until it compacts no more files, "
            "and then this command"
        )
    try:
        found = _find(runtime, selection)
    except BaseException:  # nothing is changed yet
        runtime.ledger.retention.move_sweep("erased", at)
        raise
    result = _result(runtime, found, dry_run)
    # before any change, because nobody may erase without a record
    action = runtime.ledger.actions.record(by, "eventbridge erase", write_document({"erasure_id": result.erasure_id}))
    _write_record(runtime, found, result, by)
    _erase(runtime, found)
    left = _search(runtime, selection)
    if left.rows or left.messages:
        raise UserError(
            "events with this name came while others were erased: run the command again when they are delivered"
        )
    runtime.ledger.retention.move_sweep("erased", at)
    runtime.ledger.actions.record_status(action, 0)
    return result


def _find(runtime: Runtime, selection: ErasureSelection) -> _Found:
    """Return what has the data of the selected events. Raises NotFoundError, and UserError if it cannot be erased."""
    found = _search(runtime, selection)
    if not found.rows and not found.messages:
        raise NotFoundError("no archived event, dead letter or message of an embedded bus is selected")
    _refuse_unerasable(runtime, found)
    return found


def _erase(runtime: Runtime, found: _Found) -> None:
    buses = {*found.messages, *(bus for bus, _, _ in found.identities)}
    for bus in buses:
        runtime.ledger.schemas.forget_examples(bus)
    runtime.ledger.drop_old_pages()
    for bus in buses & runtime.rule_set().buses.keys():
        with closing(runtime.open_source(runtime.rule_set().buses[bus])) as source:
            if isinstance(source, ErasableLog):
                # also without messages: an erasure that died may have replaced them and left their old pages
                source.erase(found.messages.get(bus, {}), ERASED_BODY)
    for folder in _FOLDERS:
        for path in sorted(each for each in found.rows if each.startswith(f"{folder}/")):
            check_cancelled()
            _rewrite(runtime, path, found.rows[path])
        for path in sorted(each for each in found.larger if each.startswith(f"{layout.COMPACTED}{folder}/")):
            check_cancelled()
            remove_from_larger(runtime.store, path, found.larger[path])


def _search(runtime: Runtime, selection: ErasureSelection) -> _Found:
    found = _Found()
    for path, parts in _files(runtime, "buffer"):
        bus = path.removeprefix(layout.COMPACTED).split("/")[1].removeprefix("bus=")
        if selection.bus in (None, bus):
            table = _read(runtime, path, ["source", "event_id", "body"])
            mask = np.array([selection.names(body) for body in table["body"].to_pylist()], bool)
            found.identities |= _identities(table.filter(flag_column(mask)), bus)
            found.add(path, parts, mask)
    for path, parts in _files(runtime, "dead_letters"):
        table = _read(runtime, path, ["bus", "source", "event_id", "event"])
        wanted = [
            selection.bus in (None, bus) and selection.names(event)
            for bus, event in zip(table["bus"].to_pylist(), table["event"].to_pylist(), strict=True)
        ]
        found.identities |= _identities(table.filter(flag_column(np.array(wanted, bool))))
        found.add(path, parts, np.array(wanted, bool))
    for path, parts in _files(runtime, "deliveries"):
        table = _read(runtime, path, ["bus", "source", "event_id", "delivery_id", "rule", "target"])
        mask = _mask_identities(table, found.identities, selection)
        rows = table.filter(flag_column(mask))
        found.delivery_ids |= set(rows["delivery_id"].to_pylist())
        found.targets |= {f"{row['rule']}/{row['target']}" for row in rows.select(["rule", "target"]).to_pylist()}
        found.add(path, parts, mask)
    for path, parts in (*_files(runtime, "outcomes"), *_files(runtime, "settlements")):
        ids = _read(runtime, path, ["delivery_id"])["delivery_id"].to_pylist()
        found.add(path, parts, np.array([each in found.delivery_ids for each in ids], bool))
    for name, bus_of_rules in runtime.rule_set().buses.items():
        if selection.bus in (None, name) and bus_of_rules.source.type == "embedded":
            _search_bus(runtime, name, selection, found)
    return found


def _files(runtime: Runtime, folder: str) -> Iterator[tuple[str, _Parts]]:
    """Yield the files below a topmost folder and the larger files of compactions, with the files whose rows they have.

    A larger file may have rows of files that are rewritten already: it is searched, because it still has the data.
    """
    for path in runtime.store.list(f"{folder}/"):
        if path.endswith(".parquet") and "/sql/" not in path:
            yield path, [(0, path)]
    larger: dict[str, _Parts] = defaultdict(list)
    for path in runtime.store.list(layout.COMPACTED_LISTS):
        if layout.area_of_list(path) == folder:
            for each in read_list(runtime.store, path):
                larger[each.file].append((each.first_row, each.path))
    for path, parts in sorted(larger.items()):
        if runtime.store.exists(path):
            yield path, sorted(set(parts))


def _read(runtime: Runtime, path: str, columns: Sequence[str]) -> pa.Table:
    check_cancelled()
    return read_table(runtime.store, path, columns)


def _identities(table: pa.Table, bus: str | None = None) -> set[_Identity]:
    return {
        (bus or row["bus"], row["source"], row["event_id"])
        for row in table.to_pylist()
        if row["source"] is not None and row["event_id"] is not None
    }


def _mask_identities(table: pa.Table, identities: Collection[_Identity], selection: ErasureSelection) -> _Mask:
    names = zip(*(table[name].to_pylist() for name in ("bus", "source", "event_id")), strict=True)
    return np.array(
        [
            each in identities
            or (each[2] == selection.event_id and each[1] != ERASED_SOURCE and selection.bus in (None, each[0]))
            for each in names
        ],
        bool,
    )


def _search_bus(runtime: Runtime, bus: str, selection: ErasureSelection, found: _Found) -> None:
    with closing(runtime.open_source(runtime.rule_set().buses[bus])) as source:
        messages: dict[Partition, list[int]] = {}
        for partition in source.partitions():
            for block in source.read(partition, source.earliest(partition), source.end(partition)):
                check_cancelled()
                for offset, body in zip(block["offset"].to_pylist(), block["body"].to_pylist(), strict=True):
                    if body is not None and selection.names(body):
                        messages.setdefault(partition, []).append(offset)
        if not messages:
            return
        if not isinstance(source, ErasableLog):
            raise UserError(
                f"bus {bus} is in PostgreSQL, and its messages cannot be erased: wait until its retention has removed "
                "them, which `eventbridge maintain` does"
            )
    taken = {(row.group, row.partition): row.offset for row in runtime.ledger.offsets.find() if row.bus == bus}
    runners = {rule.runner for rule in runtime.rule_set().rules.values() if rule.bus == bus}
    for runner in sorted(runners | {group for group, _ in taken}):
        if any(max(offsets) >= taken.get((runner, partition), 0) for partition, offsets in messages.items()):
            raise UserError(
                f"the runner {runner} has not yet delivered a selected event of bus {bus}: nothing was erased. "
                "Erase it when the runner has delivered it"
            )
    found.messages[bus] = messages


def _refuse_unerasable(runtime: Runtime, found: _Found) -> None:
    """Raise UserError if events are still to be delivered, or copies of their data cannot be rewritten."""
    _refuse_files(runtime, found)
    _refuse_waiting(runtime, found)
    if runtime.ledger.queues.find([delivery_id_text(each) for each in sorted(found.delivery_ids)]):
        raise UserError(
            "an event is in a pull queue: nothing was erased. Erase it when a consumer has acknowledged it, and the "
            "next batch is committed"
        )
    if any(each.state in ("running", "paused") for each in runtime.ledger.replays.all()):
        raise UserError("a replay has not ended: nothing was erased. Let it end, or run `eventbridge replays cancel`")


def _refuse_files(runtime: Runtime, found: _Found) -> None:
    states = {batch.batch_id: batch.state for batch in runtime.ledger.batches.find(limit=None)}
    for path in found.rows:
        batch_id = layout.batch_in_name(path) or ""
        if states.get(batch_id, "committed") != "committed":
            raise UserError(
                f"batch {batch_id} has a selected event and is not committed: nothing was erased. Try again when "
                "`eventbridge status` no longer lists the batch"
            )
        if path.startswith("deliveries/") and any("/sql/" in each for each in runtime.store.list(_folder_of(path))):
            raise UserError(
                f"{_folder_of(path)} has results of Spark SQL for a selected event, which cannot be rewritten yet: "
                "nothing was erased. Retention removes them"
            )


def _refuse_waiting(runtime: Runtime, found: _Found) -> None:
    waiting: list[PendingDeliveries | DeferredMatch] = list(runtime.ledger.pending.find())
    waiting += runtime.ledger.deferred_matches.all()
    for row in waiting:
        if row.state == "closed":
            continue
        for path, rows in row.files:
            if not set(rowset.decode(rows)).isdisjoint(found.rows.get(path, ())):
                raise UserError(
                    f"an event is still to be delivered, for the rule {row.rule}: nothing was erased. Erase it when "
                    "it is delivered, or a dead letter; `eventbridge events why` shows what it waits for"
                )


def _folder_of(path: str) -> str:
    return "/".join(path.split("/")[:3]) + "/"


def _rewrite(runtime: Runtime, path: str, rows: Collection[int]) -> None:
    """Write a file again, with the same rows, of which the given ones lose their data."""
    table = read_table(runtime.store, path)
    mask = np.zeros(table.num_rows, bool)
    mask[list(rows)] = True
    folder = path.partition("/")[0]
    for name, value in _REPLACED[folder].items():
        table = _replaced(table, name, partial(_unless_null, value), mask)
    if folder == "dead_letters":
        table = _replaced(table, "attempts", _without_responses, mask)
    write_table(runtime.store, path, table)


def _replaced(table: pa.Table, name: str, change: Callable[[Any], Any], mask: _Mask) -> pa.Table:
    number = table.schema.get_field_index(name)
    values = [
        change(value) if erased else value for value, erased in zip(table[name].to_pylist(), mask.tolist(), strict=True)
    ]
    column = table.schema.field(number)
    return table.set_column(number, column, pa.array(values, column.type))


def _unless_null(new: Any, old: Any) -> Any:
    return None if old is None else new


def _without_responses(attempts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        each | {"error": None if each["error"] is None else ERASED_TEXT, "response_head": None} for each in attempts
    ]


def _result(runtime: Runtime, found: _Found, dry_run: bool) -> Erasure:
    rows: Counter[str] = Counter()
    for path, numbers in found.rows.items():
        rows[path.partition("/")[0]] += len(numbers)
    buses = runtime.rule_set().buses
    touched = {bus for bus, _, _ in found.identities}
    return Erasure(
        dry_run=dry_run,
        erasure_id=str(uuid.uuid4()),
        events=len(found.identities),
        files=len(found.rows),
        rows=dict(sorted(rows.items())),
        messages={bus: sum(map(len, offsets.values())) for bus, offsets in sorted(found.messages.items())},
        brokers=tuple(sorted(bus for bus in touched if bus not in buses or buses[bus].source.type != "embedded")),
        targets=tuple(sorted(found.targets)),
    )


def _write_record(runtime: Runtime, found: _Found, result: Erasure, by: str) -> None:
    """Record what is going to be erased, without the name by which it was selected, which may name a person."""
    at = runtime.clock()
    record = {
        "erasure_id": result.erasure_id,
        "erased_at": at.isoformat(),
        "erased_by": by,
        "events": result.events,
        "rows": {path: rowset.encode(sorted(rows)) for path, rows in sorted(found.rows.items())},
        "messages": {
            bus: [[*partition, offset] for partition, numbers in sorted(offsets.items()) for offset in numbers]
            for bus, offsets in sorted(found.messages.items())
        },
        "targets": result.targets,
    }
    runtime.store.put(layout.erasure(at, result.erasure_id), json.dumps(record, indent=1, sort_keys=True).encode())
