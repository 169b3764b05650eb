"""Compiled code that executes programs, delivery by delivery."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from eventbridge.matching.scan.compiled import compiled
from eventbridge.matching.scan.leaves import NULL, STRING
from eventbridge.matching.scan.memory import byte_at, copy_bytes, int32_at, int64_at, put_byte, put_int32
from eventbridge.matching.scan.parts import MISSING
from eventbridge.transform.kernel.program import (
    ARRIVAL,
    BODY,
    CONTEXTS,
    DELIVERY_ID,
    FIELDS,
    HAND_BACK,
    JSON_TYPE,
    LITERAL,
    PART,
    PRESENT,
)
from eventbridge.transform.kernel.write import hex_digit, write_as_text, write_in_string, write_value
from eventbridge.transform.rendered import MAXIMUM_BYTES

# The status of a delivery; n above 0 means failure number n - 1.
RENDERED: Final = 0
HANDED_BACK: Final = -1

ARRIVAL_ROOM: Final = 32
"""The number of bytes per event in the table of arrival times; the text takes 27 of them."""

_ARRIVAL_LENGTH: Final = 27
_AS_VALUE, _IN_STRING = CONTEXTS["value"], CONTEXTS["string"]
_DASH = ord("-")


class Tables(NamedTuple):
    """The addresses of the rendering's input, the number of the first target, and the parts per event."""

    operations: int
    first_operation: int
    texts: int
    first_target: int
    event: int
    event_start: int
    event_end: int
    row_of_event: int
    part_kind: int
    part_position: int
    part_length: int
    part_count: int
    arrivals: int
    delivery_event: int
    delivery_target: int
    ids: int


@compiled
def render_deliveries(
    tables: Any, room: Any, first: int, last: int, out: int, size: int, offsets: int, status: int
) -> Any:
    """Render deliveries into `out`; return the first one that did not fit into its `size` bytes, or `last`."""
    written: Any = np.int64(0)
    for delivery in range(first, last):
        target = int64_at(tables.delivery_target, delivery) - tables.first_target
        begin = written
        outcome = RENDERED
        row = int64_at(tables.first_operation, target)
        stop = int64_at(tables.first_operation, target + 1)
        while row < stop and outcome == RENDERED:
            most = _max_bytes(tables, row, delivery)
            if written - begin + most > MAXIMUM_BYTES:  # it may be too large, which the Python renderer decides
                outcome = HANDED_BACK
            elif written + most > size:
                return delivery
            else:
                written, outcome = _operate(tables, row, delivery, out, written, room)
            row += 1
        if outcome != RENDERED:
            written = begin
        put_int32(status, delivery - first, outcome)
        put_int32(offsets, delivery - first + 1, written)
    return last


@compiled
def _field(tables: Any, row: int, field: int) -> Any:
    return int64_at(tables.operations, row * FIELDS + field)


@compiled
def _part(tables: Any, row: int, delivery: int) -> Any:
    event = int64_at(tables.delivery_event, delivery)
    return int64_at(tables.row_of_event, event) * tables.part_count + _field(tables, row, 6)


@compiled
def _max_bytes(tables: Any, row: int, delivery: int) -> Any:
    """Return the maximum number of bytes that an operation may write."""
    code = _field(tables, row, 0)
    if code == PART:
        length = int32_at(tables.part_length, _part(tables, row, delivery))
        return 2 * length + 2 + _field(tables, row, 3) + _field(tables, row, 5)
    if code == LITERAL:
        return _field(tables, row, 3)
    if code == BODY:
        event = int64_at(tables.delivery_event, delivery)
        return int64_at(tables.event_end, event) - int64_at(tables.event_start, event)
    return 36


@compiled
def _operate(tables: Any, row: int, delivery: int, out: int, written: int, room: Any) -> Any:
    """Execute one operation; return the position after its output, and the status of the delivery."""
    code = _field(tables, row, 0)
    if code == LITERAL:
        return _put_text(tables, row, 2, out, written), RENDERED
    if code == PART:
        return _write_part(tables, row, delivery, out, written, room)
    if code == BODY:
        event = int64_at(tables.delivery_event, delivery)
        start = int64_at(tables.event_start, event)
        length = int64_at(tables.event_end, event) - start
        return copy_bytes(out, written, tables.event, start, length), RENDERED
    if code == DELIVERY_ID:
        return _write_id(tables.ids + 16 * delivery, out, written), RENDERED
    if code == ARRIVAL:
        event = int64_at(tables.delivery_event, delivery)
        return copy_bytes(out, written, tables.arrivals, ARRIVAL_ROOM * event, _ARRIVAL_LENGTH), RENDERED
    if code == HAND_BACK:
        return written, HANDED_BACK
    kind = byte_at(tables.part_kind, _part(tables, row, delivery))
    if code == PRESENT:
        return written, HANDED_BACK if kind == MISSING else RENDERED
    if kind == MISSING or (code == JSON_TYPE and (kind == NULL or _is_text(tables, row, delivery))):
        return written, RENDERED
    return written, HANDED_BACK


@compiled
def _put_text(tables: Any, row: int, field: int, out: int, written: int) -> Any:
    return copy_bytes(out, written, tables.texts, _field(tables, row, field), _field(tables, row, field + 1))


@compiled
def _write_part(tables: Any, row: int, delivery: int, out: int, written: int, room: Any) -> Any:
    part = _part(tables, row, delivery)
    kind = byte_at(tables.part_kind, part)
    if kind == MISSING:
        failure = _field(tables, row, 7)
        return _put_text(tables, row, 4, out, written), failure
    if kind == NULL:
        return _put_text(tables, row, 2, out, written), RENDERED
    position, length = int64_at(tables.part_position, part), int32_at(tables.part_length, part)
    context = _field(tables, row, 1)
    if context == _AS_VALUE:
        written = write_value(kind, tables.event, position, length, out, written, room)
    elif context == _IN_STRING:
        written = write_in_string(kind, tables.event, position, length, out, written, room)
    else:
        written = write_as_text(kind, tables.event, position, length, out, written, room)
    return written, RENDERED if written >= 0 else HANDED_BACK


@compiled
def _is_text(tables: Any, row: int, delivery: int) -> bool:
    part = _part(tables, row, delivery)
    position, length = int64_at(tables.part_position, part), int32_at(tables.part_length, part)
    if byte_at(tables.part_kind, part) != STRING or length != _field(tables, row, 3):
        return False
    text = _field(tables, row, 2)
    for index in range(length):
        if byte_at(tables.event, position + index) != byte_at(tables.texts, text + index):
            return False
    return True


@compiled
def _write_id(raw: int, out: int, written: int) -> Any:
    """Write 16 bytes as the text of a UUID."""
    for index in range(16):
        if index == 4 or index == 6 or index == 8 or index == 10:
            put_byte(out, written, _DASH)
            written += 1
        put_byte(out, written, hex_digit(byte_at(raw, index) >> 4))
        put_byte(out, written + 1, hex_digit(byte_at(raw, index) & 15))
        written += 2
    return written
