"""Deliveries are grouped into batch requests, and each batch request has an id."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbridge.policy.batch_request import (
    MEDIA_TYPES,
    Candidate,
    Kind,
    Limits,
    batch_request_id,
    ids_text,
    join_payloads,
    kind_of,
    limits_after_refusal,
    together,
)

CANDIDATES = st.lists(
    st.builds(
        Candidate,
        st.sampled_from(["events", "values", None]),
        st.integers(0, 300),
        st.integers(1, 12),
    ),
    max_size=60,
)
LIMITS = st.builds(Limits, st.integers(2, 12), st.integers(1, 1_000))


def batch_requests(candidates: list[Candidate], limits: Limits) -> list[list[Candidate]]:
    """Return the batch requests in which candidates are sent."""
    found, first = [], 0
    while count := together(iter(candidates[first:]), limits):
        found.append(candidates[first : first + count])
        first += count
    assert first == len(candidates)
    return found


@given(CANDIDATES, LIMITS)
def test_batch_requests_hold_everything_in_order_and_keep_every_limit(
    candidates: list[Candidate], limits: Limits
) -> None:
    """No batch request mixes kinds or exceeds a limit, even one of a single delivery's; only a lone delivery may."""
    found = batch_requests(candidates, limits)

    assert [each for batch_request in found for each in batch_request] == candidates
    for batch_request in found:
        assert len({each.kind for each in batch_request}) == 1
        assert batch_request[0].kind is not None or len(batch_request) == 1
        assert len(batch_request) <= min(limits.count, *(each.most for each in batch_request))
        size = len(join_payloads([b"x" * each.size_bytes for each in batch_request]))
        assert size <= limits.size_bytes or len(batch_request) == 1


@given(CANDIDATES, LIMITS)
def test_no_batch_request_could_hold_the_next_one_too(candidates: list[Candidate], limits: Limits) -> None:
    """Deliveries that fit into one batch request are not sent in two."""
    found = batch_requests(candidates, limits)

    for batch_request, after in pairwise(found):
        more = [*batch_request, after[0]]
        size = len(join_payloads([b"x" * each.size_bytes for each in more]))
        assert (
            len({each.kind for each in more}) > 1
            or batch_request[0].kind is None
            or len(more) > min(limits.count, *(each.most for each in more))
            or size > limits.size_bytes
        )


def test_of_what_comes_later_nothing_is_asked_for() -> None:
    """Only the next candidate is read, because thousands may be waiting."""
    asked: list[int] = []

    def endless() -> Iterator[Candidate]:
        while True:
            asked.append(1)
            yield Candidate("events", 10, 100)

    assert together(endless(), Limits(10, 1_000)) == 10
    assert len(asked) == 11


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        ("application/cloudevents+json", "events"),
        ("application/CloudEvents+JSON; charset=UTF-8", "events"),
        ("application/json", "values"),
        ('application/json;charset="utf-8"', "values"),
        ("application/vnd.example.order+json", "values"),
        ("application/cloudevents-batch+json", "values"),
        ("application/json; charset=utf-16", None),
        ("application/json; profile=order", None),
        ("text/plain; charset=utf-8", None),
        ("application/jsonlines", None),
        ("json", None),
        ("", None),
    ],
)
def test_the_content_type_decides_the_kind_of_array(content_type: str, kind: Kind | None) -> None:
    """Events and other JSON are not mixed; a delivery that an array cannot describe is sent alone."""
    assert kind_of(content_type) == kind


def test_an_array_has_its_items_byte_for_byte() -> None:
    """An array contains its items with their spaces, digits and order unchanged."""
    items = [b'{"n": 2.50}', b"[ 1 ]", b'"x"', b"null"]

    assert join_payloads(items) == b'[{"n": 2.50},[ 1 ],"x",null]'
    assert json.loads(join_payloads(items[:1])) == [{"n": 2.5}]
    assert set(MEDIA_TYPES.values()) == {"application/cloudevents-batch+json", "application/json"}


def test_a_batch_request_of_one_has_the_id_of_its_delivery() -> None:
    """A batch request of one delivery has the id of that delivery, as without batch requests."""
    one = str(uuid.uuid4())

    assert batch_request_id([one]) == one


def test_the_same_deliveries_in_the_same_order_have_the_same_id() -> None:
    """The id is a hash of the list of deliveries, so that a signature over the id also protects the list."""
    ids = [str(uuid.UUID(int=n)) for n in range(5)]

    found = uuid.UUID(batch_request_id(ids))
    assert batch_request_id(list(ids)) == str(found)
    assert found.version == 8
    hashed = uuid.UUID(bytes=hashlib.sha256(",".join(ids).encode()).digest()[:16])
    assert found.int & hashed.int & ~(0xF << 76 | 0x3 << 62) == hashed.int & ~(0xF << 76 | 0x3 << 62)
    assert ids_text(ids) == ",".join(ids)
    assert len({batch_request_id(ids), batch_request_id(ids[::-1]), batch_request_id(ids[:4])}) == 3


def test_a_refusal_lowers_the_limits() -> None:
    """413 halves the limit of bytes and 431 that of deliveries; a request of one delivery changes neither."""
    limits = Limits(100, 10_000)

    assert limits_after_refusal(limits, 413, 100, 9_000) == Limits(100, 4_500)
    assert limits_after_refusal(Limits(100, 4_000), 413, 100, 9_000) == Limits(100, 4_000)
    assert limits_after_refusal(limits, 431, 100, 9_000) == Limits(50, 10_000)
    assert limits_after_refusal(limits, 400, 100, 9_000) == limits
    assert limits_after_refusal(limits, 413, 1, 9_000) == limits
