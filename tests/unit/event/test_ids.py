"""Batch ids, delivery ids and fingerprints."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbridge.event.ids import Fingerprint, delivery_id, delivery_id_text, new_batch_id

AT = datetime(2026, 11, 21, 18, 59, 3, 250_000, tzinfo=UTC)
FIELDS = ("flights", "/airports/JFK", "2013-01-01", "late", "crm", "")
IDS = st.binary(min_size=16, max_size=16)


def test_a_batch_id_is_a_uuid_of_version_7_with_its_time() -> None:
    """The first 48 bits are the milliseconds since 1970; version and variant are those of RFC 9562."""
    batch_id = uuid.UUID(new_batch_id(AT))

    assert batch_id.version == 7
    assert batch_id.variant == uuid.RFC_4122
    assert batch_id.int >> 80 == int(AT.timestamp() * 1000)


def test_batch_ids_sort_by_time_and_never_repeat() -> None:
    """Later batches have greater ids as text, and ids of one millisecond differ."""
    ids = [new_batch_id(AT + timedelta(milliseconds=n)) for n in range(100)]

    assert ids == sorted(ids)
    assert len({new_batch_id(AT) for _ in range(1_000)}) == 1_000


def test_a_batch_id_does_not_depend_on_the_zone() -> None:
    """The same moment written in another zone gives the same time."""
    elsewhere = AT.astimezone(timezone(timedelta(hours=5, minutes=30)))

    assert new_batch_id(AT)[:13] == new_batch_id(elsewhere)[:13]


def test_a_delivery_id_is_fixed_for_ever() -> None:
    """Receivers have these ids on record, so the hash and its layout may never change."""
    raw = delivery_id("flights", "/airports/JFK", "2013-01-01", "late", "crm")

    assert delivery_id_text(raw) == "050b57d4-b9b1-8508-bf64-908bce599dad"


def test_a_delivery_id_is_a_uuid_of_version_8() -> None:
    """The layout is UUIDv8 with the variant of RFC 9562."""
    as_uuid = uuid.UUID(delivery_id_text(delivery_id(*FIELDS)))

    assert as_uuid.version == 8
    assert as_uuid.variant == uuid.RFC_4122


@pytest.mark.parametrize("number", range(len(FIELDS)))
def test_every_field_counts(number: int) -> None:
    """Another bus, source, event, rule, target or replay is another delivery."""
    other = list(FIELDS)
    other[number] += "x"

    assert delivery_id(*other) != delivery_id(*FIELDS)


@given(st.tuples(*[st.text(max_size=4)] * 6), st.tuples(*[st.text(max_size=4)] * 6))
def test_ids_are_equal_only_for_equal_fields(first: tuple[str, ...], second: tuple[str, ...]) -> None:
    """No text moved from one field to the next, and no half surrogate, makes two deliveries one."""
    assert (delivery_id(*first) == delivery_id(*second)) == (first == second)


def test_text_that_moves_between_fields_changes_the_id() -> None:
    """("a", "bc") and ("ab", "c") are two deliveries."""
    assert delivery_id("a", "bc", "", "", "") != delivery_id("ab", "c", "", "", "")


def test_a_half_surrogate_has_an_id() -> None:
    """An event id may hold what JSON allows and UTF-8 does not."""
    assert len(delivery_id("b", "s", "\ud800", "r", "t")) == 16


@given(st.lists(IDS, unique=True), st.randoms())
def test_order_does_not_matter(ids: list[bytes], random: object) -> None:
    """A fingerprint is of a set: shuffled, or added up from parts, it is the same."""
    shuffled = sorted(ids, key=lambda _: random.random())  # type: ignore[attr-defined]
    half = len(ids) // 2

    assert Fingerprint.from_ids(ids) == Fingerprint.from_ids(shuffled)
    assert Fingerprint.from_ids(ids) == Fingerprint.from_ids(ids[:half]) + Fingerprint.from_ids(ids[half:])


@given(st.lists(IDS, unique=True, min_size=1), IDS)
def test_a_lost_added_or_doubled_id_shows(ids: list[bytes], other: bytes) -> None:
    """Sets that differ by one id have fingerprints that differ, also when the count is made up for."""
    whole = Fingerprint.from_ids(ids)

    assert Fingerprint.from_ids(ids[1:]) != whole
    assert Fingerprint.from_ids([*ids, ids[0]]) != whole
    if other not in ids:
        assert Fingerprint.from_ids([*ids[1:], other]) != whole
        assert Fingerprint.from_ids([*ids, other]) != whole


def test_real_ids_have_hashes_of_their_own() -> None:
    """Of a thousand ids no two have the same hash."""
    ids = [delivery_id("b", "s", str(n), "r", "t") for n in range(1_000)]

    assert len({Fingerprint.from_ids([raw]).xor for raw in ids}) == 1_000


def test_doubles_that_cancel_out_in_the_xor_show_in_the_sum() -> None:
    """Two of one id and two of another have the same count and the same xor, 0."""
    one, other = (delivery_id("b", "s", event_id, "r", "t") for event_id in ("1", "2"))

    assert Fingerprint.from_ids([one, one]).xor == Fingerprint.from_ids([other, other]).xor == 0
    assert Fingerprint.from_ids([one, one]) != Fingerprint.from_ids([other, other])


def test_a_fingerprint_survives_json() -> None:
    """What as_list gives for JSON is the whole fingerprint, and every number fits into 64 bits."""
    fingerprint = Fingerprint.from_ids(delivery_id("b", "s", str(n), "r", "t") for n in range(50))

    assert Fingerprint(*fingerprint.as_list()) == fingerprint
    assert all(0 <= number < 2**64 for number in fingerprint.as_list())
    assert Fingerprint.from_ids([]) == Fingerprint()
