"""What a pull of RocketMQ brought, as blocks: the same as message by message, whatever lies there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.clients.rocketmq.test_messages import NO_MESSAGE, PROPERTIES, stored

from eventbridge.clients.rocketmq.remoting.errors import Malformed
from eventbridge.clients.rocketmq.remoting.reading import PullResult
from eventbridge.sources.messages import MESSAGES
from eventbridge.sources.rocketmq.blocks import blocks_of, blocks_of_bodies, headers_of

NAMED = st.one_of(PROPERTIES, st.just({"KEYS": "a", "CE_type": "flight.landed", "UNIQ_KEY": "7F"}))
BODIES = st.lists(st.tuples(st.binary(max_size=60), NAMED), max_size=6)


def rows(blocks: Sequence[pa.RecordBatch]) -> list[dict[str, object]]:
    """Return messages as rows."""
    return pa.Table.from_batches(blocks, schema=MESSAGES).to_pylist()  # type: ignore[no-any-return]


@given(
    st.lists(st.tuples(BODIES, st.integers(0, 2), st.integers(0, 2)), max_size=4),
    st.sampled_from([0, 0, 0x1, 0x10, 0x30, 0xC0]),
    st.sampled_from([0xDAA320A7, 0xDAA320A7, 0xDAA320AB]),
)
def test_blocks_hold_what_messages_hold(
    responses: Sequence[tuple[Sequence[tuple[bytes, Mapping[str, str]]], int, int]], flags: int, magic: int
) -> None:
    """Of each response what it was asked for, in any format; messages of both are one after the other."""
    pulled: list[PullResult] = []
    offset = 10
    for each, before, behind in responses:
        data = b"".join(
            stored(offset + number, body, properties, flags=flags if number else 0, magic=magic)
            for number, (body, properties) in enumerate(each)
        )
        pulled.append(PullResult(data, offset + before, offset + len(each) - behind))
        offset += len(each)

    expected = rows(list(blocks_of(each.messages() for each in pulled)))
    assert rows(list(blocks_of_bodies([pulled]))) == expected
    assert rows(list(blocks_of_bodies([[each] for each in pulled]))) == expected


@pytest.mark.parametrize("field", ["length of the body", "length of the properties", "total"])
def test_a_message_that_says_it_is_longer_is_refused(field: str) -> None:
    """As it is where messages are read one by one."""
    data = bytearray(stored(7, b"body", {"a": "b"}))
    at = {"length of the body": 84, "length of the properties": 88 + 4 + 8, "total": 0}[field]
    data[at : at + 2] = b"\x7f\xff"

    with pytest.raises(Malformed):
        list(blocks_of_bodies([[PullResult(bytes(data), 0, 9)]]))


@given(NO_MESSAGE)
def test_invalid_bytes_are_refused(data: bytes) -> None:
    """Bytes of no known format are an error, alone and behind a message; no bytes are no messages."""
    for body in (data, stored(0, b"first", {"KEYS": "a"}) + data):
        with pytest.raises(Malformed):
            list(blocks_of_bodies([[PullResult(body, 0, 1 << 40)]]))

    assert list(blocks_of_bodies([[PullResult(b"", 0, 1 << 40)]])) == []


def read_or_refused(read: Callable[[], Iterable[pa.RecordBatch]]) -> pa.Table | None:
    """Return what was read as one table, whose times may lie beyond those of Python; None: it is no message."""
    try:
        return pa.Table.from_batches(list(read()), schema=MESSAGES)
    except Malformed:
        return None


@given(BODIES.filter(bool), st.lists(st.tuples(st.integers(0, 400), st.binary(min_size=1, max_size=3)), max_size=3))
def test_damaged_messages_are_read_or_refused_as_one_by_one(
    each: Sequence[tuple[bytes, Mapping[str, str]]], damages: Sequence[tuple[int, bytes]]
) -> None:
    """Whatever bytes of messages are overwritten: blocks hold what the messages hold, or both are refused."""
    data = bytearray(b"".join(stored(number, *one) for number, one in enumerate(each)))
    for field, by in damages:
        at = field % len(data)
        data[at : at + len(by)] = by[: len(data) - at]
    pulled = PullResult(bytes(data), 0, 1 << 40)

    assert read_or_refused(lambda: blocks_of_bodies([[pulled]])) == read_or_refused(
        lambda: blocks_of([pulled.messages()])
    )


def test_a_message_has_one_media_type() -> None:
    """CloudEvents' SDK has three names for it: the first that a message has counts."""
    several = {"contenttype": "a/c", "CE_datacontenttype": "a/b", "CE_contenttype": "a/a", "CE_type": "t"}

    assert headers_of(several) == [("content-type", b"a/a"), ("ce_type", b"t")]
    del several["CE_contenttype"]
    assert headers_of(several) == [("content-type", b"a/b"), ("ce_type", b"t")]
