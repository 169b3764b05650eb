"""What compiled code recognises as an event is one, with the same names and identity; the rest is left to others."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.event.test_recognise import TWICE

from eventbridge.errors import EventError
from eventbridge.event.cloudevent import parse_event
from eventbridge.matching.scan.attributes import ID, SOURCE, TYPE
from eventbridge.matching.scan.recognised import recognise_texts
from eventbridge.matching.scan.texts import padded_texts, side_by_side
from eventbridge.pipeline.ingest.checking import CheckResult, check_one_by_one, identity_of
from eventbridge.pipeline.ingest.compiled_check import check_compiled
from eventbridge.transform.kernel.ids import identities_of

EVENT = {"specversion": "1.0", "id": "a1", "source": "/shop", "type": "order.placed", "data": {"amount": 1.5, "to": []}}
FULL = EVENT | {
    "time": "2026-02-28T23:59:59.25+01:00",
    "subject": "7",
    "datacontenttype": "application/json",
    "dataschema": "https://shop/schemas/order",
    "ext1": "x",
    "ext2": True,
    "data": {"deep": [[{"é": "\\"}], -1.5e300, None], "text": 'a "quoted" \U0001f600'},
}
MAXIMUM = 2_000

_texts = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ["1.0", "/a", "x:y", "//h/a", "//h:1", "a:b@c", "2026-01-31T00:00:00Z", "2026-02-29T00:00:00Z", "text/plain"]
    ),
    st.from_regex(r"[0-2]\d{3}-[01]\d-[0-3]\dT[0-2]\d:[0-6]\d:[0-6]\d(\.\d+)?(Z|[+-][0-2]\d:[0-6]\d)", fullmatch=True),
    st.from_regex(r"[a-z0-9+/:@%?#.]{0,8}", fullmatch=True),
)
_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), _texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_texts, inner, max_size=3)),
    max_leaves=8,
)
_names = st.one_of(st.sampled_from([*FULL, "data_base64", "ext", "ext-1"]), _texts)

Names = tuple[str, str, str]


def _strictly(body: bytes) -> Names | None:
    try:
        event = parse_event(body, max_bytes=MAXIMUM)
    except EventError:
        return None
    return event.id, event.source, event.type


def _recognised(bodies: Sequence[bytes]) -> list[Names | None]:
    """Return the names of what is recognised, having compared identities with those of one by one."""
    texts = padded_texts(pa.array(bodies, pa.binary()))
    found = recognise_texts(texts, MAXIMUM)
    columns = [side_by_side(texts.buffer, found.begin[:, name], found.length[:, name]) for name in (ID, SOURCE, TYPE)]
    names = list(zip(*(column.to_pylist() for column in columns), strict=True))
    identities = identities_of(texts.buffer, found)
    for (event_id, source, _), identity, sure in zip(names, identities, found.sure, strict=True):
        assert not sure or identity.tobytes() == identity_of(source, event_id)
    return [each if sure else None for each, sure in zip(names, found.sure, strict=True)]


def _compare(bodies: Sequence[bytes]) -> int:
    """Fail unless all that is recognised is an event, with these names; return how many are."""
    found = _recognised(bodies)
    for body, names in zip(bodies, found, strict=True):
        assert names is None or names == _strictly(body), body
    return sum(names is not None for names in found)


@settings(max_examples=300)
@given(_names, _values, st.booleans())
def test_a_recognised_document_is_an_event(name: str, value: Any, ascii_only: bool) -> None:
    """With any member changed, added or left out."""
    changed = [EVENT | {name: value}, FULL | {name: value}, {key: kept for key, kept in FULL.items() if key != name}]

    _compare([json.dumps(each, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass") for each in changed])


@pytest.mark.parametrize(("members", "_"), TWICE)
def test_an_event_with_a_member_twice_is_left_to_the_strict_parser(members: str, _: str) -> None:
    """It refuses that event: parsers disagree about which of the two counts."""
    body = f"{json.dumps(EVENT)[:-1]}, {members}}}".encode()

    assert _recognised([body]) == [None]
    assert _strictly(body) is None


@pytest.mark.parametrize(("count", "recognised"), [(16, True), (17, False)])
def test_events_with_many_extensions_are_left_to_the_strict_parser(count: int, recognised: bool) -> None:
    """Names of one length, and of several, are distinguished."""
    body = json.dumps(EVENT | {f"x{'y' * (number % 3)}{number:02}": "" for number in range(count)}).encode()

    assert (_recognised([body]) != [None]) == recognised
    assert _strictly(body) is not None


def test_a_damaged_event_is_recognised_only_if_it_still_is_one() -> None:
    """Whatever byte is changed, taken out or put in, or where the document ends."""
    chance = random.Random(5)
    whole = json.dumps(FULL, ensure_ascii=False).encode()
    put = [b"", b'"', b"\\", b"\\u00", b"{", b"}", b"]", b",", b":", b" ", b"\xed\xa0\x80", b"00", b"\x0c", b"null"]
    bodies = []
    for _ in range(20_000):
        body = bytearray(whole)
        for _ in range(chance.randint(1, 2)):
            at = chance.randrange(len(body))
            body[at : at + chance.randint(0, 1)] = chance.choice([*put, bytes([chance.randrange(256)])])
        bodies.append(bytes(body))

    assert _compare(bodies) > 1_000


@pytest.mark.parametrize(
    ("changes", "recognised"),
    [
        ({}, True),
        ({"source": "https://shop/a"}, True),
        ({"source": "urn:uuid:1@a"}, True),
        ({"time": "2026-07-31T00:00:00Z"}, True),
        ({"data": None}, True),
        ({"data": "text"}, True),
        ({"data": 10**400}, True),
        ({"id": 7}, False),
        ({"id": ""}, False),
        ({"id": "é"}, False),
        ({"time": "2028-02-29T00:00:00Z"}, False),
        ({"subject": None}, False),
        ({"ext2": 5}, False),
        ({"data_base64": "QQ=="}, False),
        ({"specversion": "0.3"}, False),
        ({"filler": "x" * MAXIMUM}, False),
    ],
)
def test_usual_events_are_recognised(changes: Mapping[str, Any], recognised: bool) -> None:
    """And what is less usual is left to the strict parser, whatever it says of it."""
    body = json.dumps(FULL | changes).encode()

    assert (_recognised([body]) != [None]) == recognised


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"id": "1", "id": "2", "source": "/a", "type": "t", "specversion": "1.0"}',
        b'{"\\u0069d": "1", "source": "/a", "type": "t", "specversion": "1.0"}',
        b'{"id": "\\u0031", "source": "/a", "type": "t", "specversion": "1.0"}',
        b'{"id": "1", "source": "/a", "type": "t", "specversion": "1.0"} {}',
        b'{"id": "1", "source": "/a", "type": "t", "specversion": "1.0",}',
    ],
)
def test_an_unusually_written_event_is_not_recognised(body: bytes) -> None:
    """Names twice or with escapes among them: which counts, others know."""
    assert _recognised([body]) == [None]


def _shown(checked: CheckResult) -> tuple[Any, ...]:
    columns = {name: column.to_pylist() for name, column in checked.columns.items()}
    return (
        columns,
        list(checked.types),
        {name: count for name, count in checked.counts.items() if count},
        checked.identities,
    )


@pytest.mark.parametrize("odd", [[], [b"none"], [None], [json.dumps(EVENT | {"id": "é"}).encode()]])
@pytest.mark.parametrize("again", [0, 3])
def test_checks_come_to_the_same(odd: Iterable[bytes | None], again: int) -> None:
    """Between messages that are not events, refused ones, and ids that are known or repeat, in several chunks."""
    events = [json.dumps(FULL | {"id": str(number), "type": f"t{number % 3}"}).encode() for number in range(60)]
    chunks = [pa.array(events[:20], pa.binary()), pa.array([*odd, *events[20:], *events[:again]], pa.binary())]
    bodies = pa.chunked_array([chunks[0].slice(5), chunks[1], pa.array([], pa.binary())])
    known = frozenset({identity_of("/shop", "40")} if again else ())
    refused = {2: "it was refused"} if again else {}

    found = check_compiled(bodies, refused, known, MAXIMUM)

    assert _shown(found) == _shown(check_one_by_one(bodies, refused, known, MAXIMUM))
    assert found.columns["source"].type == check_one_by_one(bodies, refused, known, MAXIMUM).columns["source"].type


def test_no_messages_come_to_nothing() -> None:
    """A range that holds nothing but gaps."""
    assert _shown(check_compiled(pa.chunked_array([], pa.binary()), {}, frozenset(), MAXIMUM))[3] == set()


def test_texts_at_the_end_of_the_memory_are_read_in_a_copy() -> None:
    """No byte behind a block is needed, as it may be unallocated."""
    body = json.dumps(EVENT).encode()
    memory = np.frombuffer(body, np.uint8)
    array = pa.Array.from_buffers(
        pa.binary(), 1, [None, pa.py_buffer(np.array([0, len(body)], np.int32)), pa.py_buffer(memory)]
    )

    assert check_compiled(pa.chunked_array([array]), {}, frozenset(), MAXIMUM).counts == {"valid": 1}
