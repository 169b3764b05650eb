"""Compiles a transform's definition to a renderer; the route stage does so once per (rule, target)."""

from __future__ import annotations

from typing import Protocol

from eventbridge.errors import TransformError
from eventbridge.event.json_document import as_json_value
from eventbridge.rules.vocabulary import FORMS
from eventbridge.transform.definition import transform_errors
from eventbridge.transform.fields import FieldsRenderer, read_steps
from eventbridge.transform.fill import ConstantRenderer, PartRenderer, TemplateRenderer
from eventbridge.transform.jsonata import JsonataRenderer
from eventbridge.transform.jsonpath import parse_path, sources
from eventbridge.transform.original import BinaryRenderer, DataRenderer, StructuredRenderer
from eventbridge.transform.plug_in import compile_plug_in
from eventbridge.transform.rendered import Renderer, SizeLimitedRenderer
from eventbridge.transform.template import parse_template

_ORIGINALS: dict[str, type[StructuredRenderer | BinaryRenderer | DataRenderer]] = {
    "structured": StructuredRenderer,
    "binary": BinaryRenderer,
    "data": DataRenderer,
}


class _Definition(Protocol):
    """The fields of a transform; `eventbridge.rules.Transform` has them."""

    @property
    def form(self) -> str: ...
    @property
    def value(self) -> object: ...
    @property
    def template(self) -> str | None: ...
    @property
    def steps(self) -> object: ...
    @property
    def missing(self) -> str | None: ...
    @property
    def content_type(self) -> str | None: ...


def compile_transform(transform: _Definition, *, content_mode: str = "structured") -> Renderer:
    """Return the renderer of a transform; `content_mode` (structured, binary, data) applies to ORIGINAL and FIELDS.

    Raises TransformError with the first of `transform_errors`, if there are any, and for the form SQL. Raises
    PlugInError for a form of a plug-in that cannot be used.
    """
    if transform.form and transform.form not in FORMS:
        return SizeLimitedRenderer(compile_plug_in(transform.form, transform.value))
    definition = {
        "form": transform.form,
        "value": transform.value,
        "template": transform.template,
        "steps": transform.steps,
        "missing": transform.missing,
        "content_type": transform.content_type,
    }
    for error in transform_errors(definition):
        raise error
    if transform.form == "ORIGINAL" or not transform.form:
        return _ORIGINALS[content_mode]()
    return SizeLimitedRenderer(_compile(transform, content_mode))


def _compile(transform: _Definition, content_mode: str) -> Renderer:
    missing_is_error = transform.missing == "error"
    match transform.form:
        case "CONSTANT":
            return ConstantRenderer(as_json_value(transform.value))
        case "JSONPATH":
            return PartRenderer(parse_path(str(transform.value)), missing_is_error=missing_is_error)
        case "TEMPLATE":
            template, _ = parse_template(transform.template or "", content_type=transform.content_type)
            return TemplateRenderer(template, sources(transform.value)[0], missing_is_error=missing_is_error)
        case "FIELDS":
            steps, _ = read_steps(transform.steps, missing_is_error=missing_is_error)
            return FieldsRenderer(steps, _ORIGINALS[content_mode]())
        case "JSONATA":
            return JsonataRenderer(str(transform.value), missing_is_error=missing_is_error)
        case "SQL":
            remedy = "Route by Spark: eventbridge deliver, or the DAGs."
            raise TransformError("only Spark can evaluate the SQL form", value=transform.value, remedy=remedy)
    raise AssertionError("a form that the definition's check does not know")
