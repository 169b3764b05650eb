"""`content_type` of a template: what is sent, and that no value becomes markup."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs
from xml.etree import ElementTree

import pytest
from unit.transform.test_transform_forms import event, rendered

from eventbridge.errors import TransformError, TransformFailed
from eventbridge.rules import Transform
from eventbridge.transform import compile_transform
from eventbridge.transform.definition import transform_errors

#: What an author of events would write to break out of a value.
SLY = "</a><evil/> ]]> <!-- & &amp; \"'\t\r\n é 😀 &x=1"
XML = "<order by='${x}'><by>${x}</by></order>"


def made(template: str, content_type: str, value: Any) -> tuple[str, str]:
    """Return payload and content type of a template with `${x}` for the value."""
    result = rendered(
        json.dumps({"x": value}), form="TEMPLATE", template=template, value={"x": "$.data.x"}, content_type=content_type
    )
    return result.payload.decode(), result.content_type


@pytest.mark.parametrize(
    "content_type", ["application/xml", "text/xml; charset=utf-8", "application/soap+xml", "A/XML"]
)
def test_a_value_in_xml_is_the_value_and_never_markup(content_type: str) -> None:
    """A parser finds exactly the value, line breaks included, in text and in an attribute."""
    payload, sent_type = made(XML, content_type, SLY)

    order = ElementTree.fromstring(payload)
    assert (order.get("by"), [each.tag for each in order], order.findtext("by")) == (SLY, ["by"], SLY)
    assert sent_type == content_type


@pytest.mark.parametrize(("value", "shown"), [(1.50, "1.5"), (None, ""), ({"a": "<"}, '{"a":"<"}'), (True, "true")])
def test_other_values_in_xml_are_their_text(value: Any, shown: str) -> None:
    """As in text, but escaped."""
    payload, _ = made(XML, "application/xml", value)

    assert (ElementTree.fromstring(payload).findtext("by") or "") == shown


@pytest.mark.parametrize("value", ["a\0b", "\x0b", "\ufffe"])
def test_a_value_that_xml_cannot_contain_fails_its_delivery(value: str) -> None:
    """It is not dropped from the value."""
    definition = Transform(form="TEMPLATE", template=XML, value={"x": "$.data.x"}, content_type="application/xml")

    with pytest.raises(TransformFailed, match=f"a value contains U\\+{ord(value[-2:-1] or value):04X}, which XML"):
        compile_transform(definition).render(event(json.dumps({"x": value})), None)  # type: ignore[arg-type]


def test_defaults_and_constants_are_escaped_too() -> None:
    """The rule file may contain any character in them, too."""
    result = rendered(
        form="TEMPLATE", template="<a>${no:-<&>}${c}</a>", value={"no": "$.data.no", "c": "<"}, content_type="a/xml"
    )

    assert ElementTree.fromstring(result.payload).text == "<&><"


def test_a_form_carries_each_value() -> None:
    """Percent-encoded, so that a value adds no field."""
    payload, _ = made("a=${x}&b=${x}", "application/x-www-form-urlencoded", SLY)

    assert parse_qs(payload, strict_parsing=True) == {"a": [SLY], "b": [SLY]}


def test_json_of_another_type_is_json() -> None:
    """A JSON type changes the type alone."""
    payload, sent_type = made('{"x": ${x}, "y": "${x}"}', "application/vnd.crm+json", SLY)

    assert (json.loads(payload), sent_type) == ({"x": SLY, "y": SLY}, "application/vnd.crm+json")


@pytest.mark.parametrize("template", ["${x}", '{"x": "${x}"}', "a;${x}"])
def test_plain_text_is_as_it_is(template: str) -> None:
    """Also if the template could be JSON."""
    payload, sent_type = made(template, "text/csv; header=absent", SLY)

    assert (payload, sent_type) == (template.replace("${x}", SLY), "text/csv; header=absent")


@pytest.mark.parametrize(
    ("content_type", "template", "said"),
    [
        ("xml", "<a>${x}</a>", "this is not a content type"),
        ("text/plain\r\nevil: 1", "${x}", "this is not a content type"),
        (5, "${x}", "content_type must be text"),
        ("multipart/mixed", "${x}", "a template has one part, and multipart types have several"),
        ("text/xml; charset=latin1", "<a>${x}</a>", "the output is UTF-8, not latin1"),
        ("application/json", "order ${x}", "the template is not JSON: "),
        ("application/xml", "<a>${x}", "the template is not XML: no element found, line 1"),
        ("application/xml", "<${x}/>", "the template is not XML: not well-formed (invalid token), line 1"),
        ("application/xml", "<a ${x}='1'/>", "the template is not XML: not well-formed (invalid token), line 1"),
        ("application/xml", "<a><![CDATA[${x}]]></a>", "the template is not XML: a placeholder may be in text"),
        ("application/xml", "<a><?p ${x}?></a>", "the template is not XML: a placeholder may be in text"),
        (
            "application/xml",
            "<!DOCTYPE a [<!ENTITY e 'x'>]><a>${x}&e;</a>",
            "the template is not XML: it has a DOCTYPE",
        ),
        ("application/xml", '<?xml version="1.0" encoding="latin1"?><a>${x}</a>', "the template is not XML: its decl"),
        ("application/xml", "<a>${x:-\x01}</a>", "a default contains U+0001"),
        ("text/html", "<a>${x:-\x01}</a>", "a default contains U+0001"),
    ],
)
def test_what_cannot_be_sent_is_an_error(content_type: Any, template: str, said: str) -> None:
    """When the rule file is read."""
    definition = {"form": "TEMPLATE", "template": template, "value": {"x": "$.id"}, "content_type": content_type}

    found = [error.message for error in transform_errors(definition)]

    assert len(found) == 1
    assert found[0].startswith(said)


def test_a_constant_that_xml_cannot_contain_is_an_error() -> None:
    """It would fail every delivery."""
    definition = {"form": "TEMPLATE", "template": "<a>${x}</a>", "value": {"x": "\0"}, "content_type": "text/xml"}

    assert [error.message for error in transform_errors(definition)] == [
        "a value contains U+0000, which XML and HTML cannot contain"
    ]


def test_other_forms_have_no_content_type() -> None:
    """Their output has its own."""
    [error] = transform_errors({"form": "CONSTANT", "value": 1, "content_type": "text/plain"})

    assert isinstance(error, TransformError)
    assert "the CONSTANT form does not accept content_type" in str(error)


@pytest.mark.parametrize("reference", ["&#xE000;", "&#57344;", "&#x0000e000;", "&#xe000;&#xE001;"])
def test_a_reference_hides_no_placeholder_in_a_comment(reference: str) -> None:
    """A value with two hyphens would end the comment, whatever characters the template refers to."""
    definition = {
        "form": "TEMPLATE",
        "template": f"<a>{reference}<!-- ${{x}} --></a>",
        "value": {"x": "$.data.x"},
        "content_type": "a/xml",
    }

    assert any("not in a comment" in str(error) for error in transform_errors(definition))


def test_a_charset_that_a_receiver_may_read_instead_is_refused() -> None:
    """The second one counts for some."""
    content_type = "text/plain; charset=utf-8; charset=latin-1"
    definition = {"form": "TEMPLATE", "template": "x", "content_type": content_type}

    assert any("UTF-8, not latin-1" in str(error) for error in transform_errors(definition))


def test_a_part_of_an_xml_document_is_escaped_as_xml() -> None:
    """text/xml-external-parsed-entity is XML too."""
    payload, _ = made("<a>${x}</a>", "text/xml-external-parsed-entity", SLY)

    assert ElementTree.fromstring(payload).text == SLY
