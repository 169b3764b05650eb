"""What compiled code makes of transforms, to be compared with what the renderers make of them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from eventbridge.errors import TransformFailed
from eventbridge.event.cloudevent import parse_event
from eventbridge.matching.scan.texts import padded_texts
from eventbridge.transform import Rendered, Scope, compile_transform
from eventbridge.transform.kernel.program import Program, compile_program
from eventbridge.transform.kernel.render import Deliveries, Events, Renderers

#: A transform and the content mode of its target.
Form = tuple[Any, str]


def program_of(form: Form, scope: Scope) -> Program:
    """Return a transform's program for one target."""
    return compile_program(form[0], form[1], scope.rule, scope.bus, scope.target)


def natively(forms: Sequence[Form], bodies: Sequence[bytes], scope: Scope) -> list[Rendered | str | None]:
    """Return what each transform makes of each event: what is sent, why it failed, None if it is handed back."""
    programs = [program_of(form, scope) for form in forms]
    renderers = Renderers(programs)
    arrived_at = (scope.ingested_at - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1_000_000
    events = Events(padded_texts(pa.array(bodies, pa.binary())), np.full(len(bodies), round(arrived_at), np.int64))
    count = len(forms) * len(bodies)
    ids = np.frombuffer(uuid.UUID(scope.delivery_id).bytes * count, np.uint8).reshape(count, 16)
    numbers = np.tile(np.arange(len(bodies), dtype=np.int64), len(forms))
    targets = np.repeat(np.arange(len(forms), dtype=np.int64), len(bodies))
    results: list[Rendered | str | None] = []
    for block in renderers.render(events, Deliveries(numbers, targets, ids)):
        assert block.first == len(results)
        for payload, status in zip(block.payload.to_pylist(), block.status.tolist(), strict=True):
            content_type = programs[targets[len(results)]].content_type
            done = Rendered(payload, content_type) if status == 0 else None
            results.append(renderers.failures[status - 1] if status > 0 else done)
    return results


def by_renderer(form: Form, body: bytes, scope: Scope) -> Rendered | str:
    """Return what the renderer makes of an event: what is sent, or why it failed."""
    try:
        return compile_transform(form[0], content_mode=form[1]).render(parse_event(body, max_bytes=1 << 24), scope)
    except TransformFailed as failure:
        return str(failure)


def assert_agreed(forms: Sequence[Form], bodies: Sequence[bytes], scope: Scope) -> int:
    """Fail where compiled code and renderers differ; return how many deliveries were not handed back."""
    found = natively(forms, bodies, scope)
    expected = [by_renderer(form, body, scope) for form in forms for body in bodies]

    assert [want if got is None else got for got, want in zip(found, expected, strict=True)] == expected
    return len([got for got in found if got is not None])
