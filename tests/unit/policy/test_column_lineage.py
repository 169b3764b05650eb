"""Each field of a payload names the fields of the event that it comes from."""

from __future__ import annotations

from typing import Any

import pytest

from eventbridge.policy.column_lineage import Column, columns_of
from eventbridge.rules.model import Transform

#: The paths that a schema shows.
KNOWN = ("id", "source", "data", "data.customer", "data.customer.id", "data.customer.email", "data.amount")


def template(text: str, content_type: str | None = None, **value: Any) -> dict[str, Column]:
    return columns_of(Transform(form="TEMPLATE", template=text, value=value, content_type=content_type), "structured")


def fields(*steps: dict[str, Any], mode: str = "data", known: tuple[str, ...] = KNOWN) -> dict[str, Column]:
    return columns_of(Transform(form="FIELDS", steps=list(steps)), mode, known)


def test_a_template_copies_values_and_joins_text() -> None:
    """A placeholder alone is a copy; text around it makes it a change; constants and predefined names have no field."""
    found = template(
        '{"id": "${id}", "amount": ${amount}, "who": {"name": "${first} ${last}"}, "desk": "${desk}", "n": 7,'
        ' "items": [{"sku": ${sku}}, {"sku": "x${sku}"}], "all": ${all:-{\\}}, "at": "${eb.rule}"}',
        id="$.id",
        amount="$.data.amount",
        first="$.data.customer['first name']",
        last="$.data.customer.last",
        desk="ops-1",
        sku="$.data.items[0].sku",
        all="$",
    )

    assert found == {
        "id": Column(("id",)),
        "amount": Column(("data.amount",)),
        "who.name": Column(('data.customer."first name"', "data.customer.last"), is_copy=False),
        "items.sku": Column(("data.items.sku",), is_copy=False),
        "all": Column(("data",)),
    }


@pytest.mark.parametrize(
    ("text", "content_type", "copies"),
    [("${a} of ${b}", None, False), ("${a}", "text/plain", True), ("<o>${a}</o>", "application/xml", False)],
)
def test_a_template_that_is_no_object_has_one_field(text: str, content_type: str | None, *, copies: bool) -> None:
    """Text, XML and a single value are the field `payload`."""
    found = template(text, content_type, a="$.data.a", b="$.data.b")

    assert list(found) == ["payload"]
    assert found["payload"].is_copy is copies
    assert "data.a" in found["payload"].fields


def test_a_name_may_hold_a_placeholder() -> None:
    """A member whose name is inserted is shown by the placeholder, and no value of an event is shown."""
    assert template('{"${key}": ${a}, "$${x}": ${a}}', key="$.data.k", a="$.data.a") == {
        '"${key}"': Column(("data.a",)),
        '"${x}"': Column(("data.a",)),
    }


def test_steps_move_fields_one_after_the_other() -> None:
    """A field that was renamed and then masked comes from its first path; what no step names is copied."""
    found = fields(
        {"rename": {"path": "$.data.customer.email", "to": "contact"}},
        {"mask": {"path": "$.data.customer.contact", "keep_last": 4}},
        {"insert": {"path": "$.data.order", "value": "$.id"}},
        {"insert": {"path": "$.data.shop", "value": "eu-1"}},
        {"cast": {"path": "$.data.amount", "to": "string"}},
    )

    assert found == {
        "customer.contact": Column(("data.customer.email",), is_copy=False, is_masked=True),
        "customer.id": Column(("data.customer.id",)),
        "order": Column(("id",)),
        "amount": Column(("data.amount",), is_copy=False),
    }


def test_whole_objects_move_with_their_fields() -> None:
    """Moving, deleting, flattening and hashing an object concerns each field in it."""
    moved = fields({"rename": {"path": "$.data.customer", "to": "$.data.buyer"}})
    deleted = fields({"delete": "$.data.customer"}, {"insert": {"path": "$.data.x", "value": "$.data.customer.id"}})
    flat = fields({"flatten": {"path": "$.data.customer"}})
    hashed = fields({"hash": {"path": "$.data.customer", "salt": "s3cret"}})

    both = ("data.customer.email", "data.customer.id")
    assert moved.keys() == {"buyer.id", "buyer.email", "amount"}
    assert moved["buyer.id"] == Column(("data.customer.id",))
    assert deleted == {"amount": Column(("data.amount",))}
    assert flat["customer"] == Column(both, is_copy=False)
    assert hashed["customer"] == Column(both, is_copy=False, is_masked=True)


def test_a_field_that_no_schema_shows_has_its_path() -> None:
    """Without a schema, the fields that the steps name are known, and a part of a moved value keeps its place."""
    found = fields(
        {"rename": {"path": "$.data.a", "to": "b"}},
        {"insert": {"path": "$.data.c", "value": "$.data.b.d"}},
        {"insert": {"path": "$.data.e", "value": "$.data.f", "if_present": "keep"}},
        known=(),
    )

    assert found == {
        "b": Column(("data.a",)),
        "c": Column(("data.a.d",)),
        "e": Column(("data.e", "data.f"), is_copy=False),
    }


def test_the_whole_event_is_copied_field_by_field() -> None:
    """ORIGINAL copies what the schema shows; `data` leaves the attributes out; other forms show nothing."""
    whole = columns_of(Transform(), "structured", KNOWN)
    data = columns_of(Transform(), "data", KNOWN)

    assert whole.keys() == {"id", "source", "data.customer.id", "data.customer.email", "data.amount"}
    assert data.keys() == {"customer.id", "customer.email", "amount"}
    assert columns_of(Transform(form="CONSTANT", value={"a": 1}), "structured", KNOWN) == {}
    assert columns_of(Transform(form="SQL", value="data.amount"), "structured", KNOWN) == {}
