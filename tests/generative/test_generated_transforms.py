"""Compiled code renders the same bytes as the renderers, or returns the delivery to them."""

from __future__ import annotations

from datetime import UTC, datetime

from generative.event_texts import NAMES, event_texts
from generative.test_transform_of_any_values import json_templates
from hypothesis import given
from hypothesis import strategies as st
from unit.native_transforms import Form, assert_agreed

from eventbridge.event.json_document import Number
from eventbridge.rules import Transform
from eventbridge.transform import Scope
from eventbridge.transform.template import parse_template

SCOPE = Scope('ru"le é', "bus", "target", "0190aaaa-0000-8000-8000-00000000beef", datetime(2026, 5, 1, 12, tzinfo=UTC))

_STEPS = [f"['{name}']" for name in NAMES] + ["[0]", "[1]", "[-1]", "[-2]"]
PATHS = st.lists(st.sampled_from(_STEPS), max_size=3).map(lambda steps: "$.data" + "".join(steps)) | st.sampled_from(
    ["$", "$.source", "$.subject", "$.ext", "$.number", "$.data_base64", "$.nosuch"]
)
CONSTANTS = st.sampled_from(["x", 'a "b" é', "\ud800", 5, True, None, {"k": [Number("1.50"), "\ud800é\n"]}])
SOURCES = st.one_of(PATHS, PATHS, PATHS, CONSTANTS)
#: The placeholders of a template that is not JSON.
_TEXT_PARTS = st.sampled_from(
    [
        *("${a}", "${b}", "${c}", "${a:-none}", "${b:-\\}}", "$${a}", "é", " ", '"', "\\", "x: ", "${eb.rule}"),
        *("${eb.event}", "${eb.delivery_id}", "${eb.ingested_at}", "${eb.bus}", "${eb.target}"),
    ]
)
TEXTS = st.lists(_TEXT_PARTS, min_size=1, max_size=6).map(lambda parts: "text " + "".join(parts))
_OWN = [
    '{"e": ${eb.event}, "s": "<${eb.event}>"}',
    '["${eb.rule}", ${eb.rule}, ${eb.delivery_id}, "${eb.ingested_at}"]',
]
TEMPLATES = st.one_of(json_templates(), json_templates(), TEXTS, st.sampled_from(_OWN))


@st.composite
def forms(draw: st.DrawFn) -> Form:
    """Draw a transform of any form that compiled code supports, and a content mode."""
    missing = draw(st.sampled_from(["null", "error"]))
    form = draw(st.sampled_from(["ORIGINAL", "CONSTANT", "JSONPATH", "TEMPLATE", "TEMPLATE", "TEMPLATE"]))
    if form == "ORIGINAL":
        return Transform(), draw(st.sampled_from(["structured", "data", "binary"]))
    if form == "CONSTANT":
        return Transform(form=form, value=draw(CONSTANTS)), "structured"
    if form == "JSONPATH":
        return Transform(form=form, value=draw(PATHS), missing=missing), "structured"
    template = draw(TEMPLATES)
    inserted = {placeholder.name for placeholder in parse_template(template)[0].placeholders()}  # others are invalid
    value = {name: draw(SOURCES) for name in ("a", "b", "c") if name in inserted}
    return Transform(form=form, template=template, value=value, missing=missing), "structured"


@given(st.lists(forms(), min_size=1, max_size=4), st.lists(event_texts(), min_size=1, max_size=4))
def test_compiled_transforms_agree_with_the_renderers(transforms: list[Form], events: list[bytes]) -> None:
    """Payload, media type and failure are the same for any text of an event."""
    assert_agreed(transforms, events, SCOPE)
