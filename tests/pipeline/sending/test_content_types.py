"""A template's content type and its escaped values reach the target."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from demo.receiver import Receiver
from pipeline.delivering import Sending, http


def test_an_xml_template_is_delivered_as_xml(sending: Sending, tmp_path: Path) -> None:
    """The header is that of the rule, and the body is well-formed."""
    transform = (
        "{form: TEMPLATE, content_type: application/xml, value: {id: $.id, c: a<b}, "
        "template: '<order id=\"${id}\">${c}</order>'}"
    )
    with Receiver(tmp_path / "whole.jsonl", whole=True) as receiver:
        sending.begin(3, crm=http(receiver.url("/healthy/xml"), transform=transform))
        sending.deliver()
        requests = receiver.requests()

    assert len(requests) == 3
    for each in requests:
        assert each["headers"]["content-type"] == "application/xml"
        assert ElementTree.fromstring(each["body"]).text == "a<b"
