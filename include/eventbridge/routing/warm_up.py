"""Compiles the code of Spark's workers before the first event, so that a process is ready for any rule set.

Numba compiles on the first call, which takes 40 to 180 s once per installation, and stores the code on disk
(`eventbridge.matching.scan.compiled`). Loading it takes a second or two per process.
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Final

import pyarrow as pa

from eventbridge.errors import EventBridgeError
from eventbridge.matching.scan.attributes import TYPE
from eventbridge.matching.scan.recognised import recognise_texts
from eventbridge.matching.scan.texts import padded_texts, side_by_side
from eventbridge.model.file_detail import RoutedSlice
from eventbridge.routing.job import RouteJob, Slice
from eventbridge.routing.own_event import own_event, own_rules
from eventbridge.routing.slice import route_slice
from eventbridge.rules import Transform
from eventbridge.store.file import FileStore
from eventbridge.store.parquet import write_table
from eventbridge.store.schemas import BUFFER
from eventbridge.transform.kernel.ids import identities_of

_NAME: Final = "compile"
_THEN = datetime(2026, 1, 1, tzinfo=UTC)
_EVENT: Final = (
    b'{"specversion": "1.0", "id": "1", "source": "/compile", "type": "compile", '
    b'"data": {"text": "ab\\n", "number": 1.5, "items": [{"a": 1, "b": 2}]}}'
)
_PATTERN: Final = {
    "type": ["compile", {"prefix": "c"}, {"suffix": "e"}, {"equals-ignore-case": "Compile"}, {"wildcard": "c*l*"}],
    "data": {
        "text": [{"anything-but": "x"}, {"cidr": "10.0.0.0/8"}, {"regex": "a.*"}],
        "number": [{"numeric": [">", 1, "<", 2]}],
        "items": {"a": [1], "b": [2]},
    },
}
_TRANSFORMS: Final = (
    Transform(),
    Transform(form="CONSTANT", value="compiled"),
    Transform(form="JSONPATH", value="$.data.items[0].a"),
    Transform(form="TEMPLATE", value={"text": "$.data.text"}, template='{"text": "${text}"}'),
)


@cache
def compile_ahead() -> None:
    """Route one event with one rule that has a target for each transform form that is not budgeted, once per process.

    Raises EventBridgeError if the result is wrong, because this installation then cannot route.
    """
    with tempfile.TemporaryDirectory(prefix="eventbridge-compile-") as folder:
        store = FileStore(Path(folder))
        path = "buffer/compile.parquet"
        write_table(store, path, own_event(_NAME, "1", _EVENT), schema=BUFFER)
        job = RouteJob(
            batch_id=_NAME,
            runner=_NAME,
            bus=_NAME,
            rule_set=_NAME,
            planned_at=_THEN,
            store_uri=store.uri,
            attempt=_NAME,
            event_max_size=1 << 20,
            piece_max_deliveries=10,
            piece_max_bytes=1 << 20,
        )
        transforms = {f"target-{number}": transform for number, transform in enumerate(_TRANSFORMS)}
        result = route_slice(store, own_rules(_NAME, _PATTERN, transforms), job, Slice(_NAME, path, 0, 1))
    detail = result.detail
    right = _can_recognise() and isinstance(detail, RoutedSlice) and not detail.failed and not detail.reference_matched
    if result.rows != len(_TRANSFORMS) or not right:
        raise EventBridgeError(
            f"The compiled matcher does not work here: {result}. Report this with the output of `python -m numba -s`."
        )


def _can_recognise() -> bool:
    """Compile the code with which workers recognise events when they land them; return whether it accepts the event."""
    texts = padded_texts(pa.array([_EVENT], pa.binary()))
    found = recognise_texts(texts, len(_EVENT))
    names = side_by_side(texts.buffer, found.begin[:, TYPE], found.length[:, TYPE])
    return bool(found.sure.all()) and names.to_pylist() == [_NAME] and len(identities_of(texts.buffer, found)) == 1
