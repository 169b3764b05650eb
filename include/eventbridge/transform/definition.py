"""Checks the definition of a transform when its rule file is read, and reports all errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from eventbridge.errors import TransformError, TransformFailed, TypeUnusable
from eventbridge.event.json_document import write_document
from eventbridge.rules.types import TRANSFORM_TYPES, TransformType
from eventbridge.rules.vocabulary import FORMS
from eventbridge.similar_names import similar
from eventbridge.transform.error import either, error_at, format_value, member, nearest
from eventbridge.transform.fields import read_steps
from eventbridge.transform.fill import PREDEFINED, constant_size
from eventbridge.transform.jsonata.expression import expression_error
from eventbridge.transform.jsonpath import SEVERAL, Path, constant, parse_path, sources
from eventbridge.transform.plug_in import settings_errors
from eventbridge.transform.rendered import MAXIMUM_BYTES
from eventbridge.transform.sql.parser import expression_problem
from eventbridge.transform.template import Placeholder, Template, content_type_problem, line_and_column, parse_template

#: The maximum number of undefined placeholders, and of unused names, that are reported for one template.
_MAX_UNKNOWN: Final = 20
#: The maximum number of names for which a template is searched for the placeholders of other languages.
_MAX_TRIED: Final = 200
_FIELDS: Final = ("form", "value", "template", "steps", "missing", "content_type")


def transform_errors(definition: object) -> list[TransformError]:
    """Return every error in a transform as written in a rule file, each with its JSON path inside the transform.

    `definition` is the mapping of the fields. None stands for a field that is not given, except in `value`, where it is
    JSON's null.
    """
    if not isinstance(definition, Mapping):
        return [error_at("$", "a transform must be a mapping", definition, "Write form: ORIGINAL, or another form")]
    errors = [_unknown_field(name) for name in definition if name not in _FIELDS]
    words = ("skip", "error") if definition.get("form") == "FIELDS" else ("null", "error")
    if definition.get("missing") not in (None, *words):
        message = f"missing is {format_value(definition['missing'])}, but must be {either(words)}"
        errors.append(error_at("$.missing", message, definition["missing"], "Write missing: error, or remove it"))
    form = definition.get("form")
    try:
        plug_in = TRANSFORM_TYPES.find(form) if form not in FORMS else None
    except TypeUnusable as error:
        return [*errors, error_at("$.form", error.what, form, error.remedy)]
    if plug_in is not None:
        return [*errors, *_check_plug_in(plug_in, definition)]
    check = _CHECKS.get(form if isinstance(form, str) else _implied_form(definition))
    if check is None or (form is not None and not isinstance(form, str)):
        return [*errors, _unknown_form(form)]
    return [*errors, *map(_with_jsonata, check(definition))]


def _check_original(definition: Mapping[Any, Any]) -> Iterable[TransformError]:
    yield from _extra_field_errors(definition, "ORIGINAL", "value", "template", "steps", "content_type")


def _check_constant(definition: Mapping[Any, Any]) -> Iterable[TransformError]:
    yield from _extra_field_errors(definition, "CONSTANT", "template", "steps", "content_type")
    if "value" not in definition:
        yield error_at("$", "the CONSTANT form needs a value", None, "Write value: and the content of every delivery")
        return
    try:
        value = constant(definition["value"], "$.value")
    except TransformError as error:
        yield error
        return
    if (size := len(write_document(value).encode("utf-8", "surrogatepass"))) > MAXIMUM_BYTES:
        yield _too_large("$.value", size)


def _check_jsonpath(definition: Mapping[Any, Any]) -> Iterable[TransformError]:
    yield from _extra_field_errors(definition, "JSONPATH", "template", "steps", "content_type")
    value = definition.get("value")
    if not isinstance(value, str):
        where = "$" if value is None else "$.value"
        yield error_at(
            where, "the JSONPATH form needs a path as its value", value, "Write value: $.data.name, or $ for the data"
        )
        return
    try:
        parse_path(value, "$.value")
    except TransformError as error:
        yield error


def _with_jsonata(error: TransformError) -> TransformError:
    """Return an error; if its path leads to several values, the remedy also names the form that sends all of them."""
    if SEVERAL not in error.message:
        return error
    remedy = f"{error.remedy.removesuffix('.')}; for all of them write form: JSONATA"
    if isinstance(error.value, str) and _EACH_ELEMENT.fullmatch(error.value):
        remedy += f", such as value: {error.value[2:].replace('[*]', '')}[]"
    return TransformError(error.message, path=error.path, value=error.value, remedy=f"{remedy}.")


def _check_fields(definition: Mapping[Any, Any]) -> Iterable[TransformError]:
    yield from _extra_field_errors(definition, "FIELDS", "value", "template", "content_type")
    yield from read_steps(definition.get("steps"), missing_is_error=definition.get("missing") == "error")[1]


def _check_jsonata(definition: Mapping[Any, Any]) -> Iterable[TransformError]:
    yield from _extra_field_errors(definition, "JSONATA", "template", "steps", "content_type")
    value = definition.get("value")
    if not isinstance(value, str):
        where = "$" if value is None else "$.value"
        yield error_at(where, "the JSONATA form needs an expression as its value", value, "Write value: data.name")
    elif found := expression_error(value, "$.value"):
        yield found


def _check_sql(definition: Mapping[Any, Any]) -> Iterable[TransformError]:
    yield from _extra_field_errors(definition, "SQL", "template", "steps", "content_type")
    value = definition.get("value")
    if not isinstance(value, str):
        where = "$" if value is None else "$.value"
        yield error_at(where, "the SQL form needs an expression as its value", value, "Write value: data:name::string")
    elif problem := expression_problem(value):
        yield error_at("$.value", problem[0], value, problem[1])


def _check_plug_in(kind: TransformType, definition: Mapping[Any, Any]) -> Iterable[TransformError]:
    yield from _extra_field_errors(definition, kind.name, "template", "steps", "missing", "content_type")
    yield from settings_errors(kind, definition.get("value"))


def _check_template(definition: Mapping[Any, Any]) -> Iterable[TransformError]:
    yield from _extra_field_errors(definition, "TEMPLATE", "steps")
    content_type = definition.get("content_type")
    if content_type is not None and (problem := _content_type_problem(content_type)):
        yield error_at("$.content_type", problem[0], content_type, problem[1])
        content_type = None
    names, errors = sources(definition.get("value"))
    yield from errors
    text = definition.get("template")
    if not isinstance(text, str) or not text:
        where = "$" if text is None else "$.template"
        yield error_at(
            where, "the TEMPLATE form needs text as its template", text, "Write template: 'text with ${name}'"
        )
        return
    template, errors = parse_template(text, "$.template", content_type)
    if errors and len(names) <= _MAX_TRIED and is_right_with_placeholders(names, text, content_type):
        errors = []
    yield from errors
    known = [*names, *PREDEFINED]
    meant = []
    unknown = (each for each in template.placeholders() if each.name not in names and each.name not in PREDEFINED)
    for placeholder in islice(unknown, _MAX_UNKNOWN):
        near = similar(placeholder.name, known)
        meant += near
        yield _unknown_name(placeholder, text, near)
    if not errors:
        unused = (name for name in names if name not in meant)
        yield from islice(unused_names(unused, text, template), _MAX_UNKNOWN)
    constants = {name: each for name, each in names.items() if not isinstance(each, Path)}
    try:
        size = constant_size(template, constants)
    except TransformFailed as failure:  # such as a control character in XML
        yield error_at("$.value", str(failure), None, "Remove it")
        return
    if size > MAXIMUM_BYTES:
        yield _too_large("$.template", size)


def _content_type_problem(value: object) -> tuple[str, str] | None:
    if not isinstance(value, str):
        return "content_type must be text", "Write content_type: application/xml, for example"
    return content_type_problem(value)


def _too_large(where: str, size: int) -> TransformError:
    message = f"every delivery would have {size:,} bytes or more; the maximum is {MAXIMUM_BYTES:,}"
    return error_at(where, message, None, "Write less text, or fewer placeholders of long constants")


def _unknown_name(placeholder: Placeholder, text: str, near: list[str]) -> TransformError:
    name, at = placeholder.name, placeholder.at
    meant = f"Did you mean ${{{near[0]}}}? If not, define" if near else "Define"
    remedy = f"{meant} {name} under value, such as {name}: $.data.{name}; for the text itself write $${{{name}}}"
    return error_at("$.template", f"${{{name}}} at {at} is not defined", text, remedy)


def _unknown_field(name: object) -> TransformError:
    remedy = nearest(name, _FIELDS, f"The fields are {', '.join(_FIELDS)}")
    return error_at(member("$", name), f"a transform has no field {name}", name, remedy)


def _unknown_form(form: object) -> TransformError:
    known = (*FORMS, *TRANSFORM_TYPES.names())
    forms = either(known)
    if form is None:
        return error_at("$", "the transform has no form", form, f"Write form: and one of {forms}")
    near = similar(str(form).upper(), FORMS) or similar(str(form), known)
    remedy = f"Did you mean {near[0]}?" if near else f"Use {forms}"
    return error_at("$.form", f"there is no form {format_value(form)}", form, remedy)


def _implied_form(definition: Mapping[Any, Any]) -> str:
    """Return the form of a transform that names none: ORIGINAL if it has no other fields, else an empty string."""
    bare = all(definition.get(field) is None for field in ("value", "template", "steps"))
    return "ORIGINAL" if bare else ""


def _extra_field_errors(definition: Mapping[Any, Any], form: str, *fields: str) -> Iterable[TransformError]:
    for field in fields:
        if definition.get(field) is not None:
            yield error_at(
                f"$.{field}",
                f"the {form} form does not accept {field}",
                form,
                f"Remove it, or write form: {_OWNERS[field]}",
            )


#: A path of names and [*] into the data, which leads to a part of every element of a list.
_EACH_ELEMENT: Final = re.compile(r"\$\.data(\.[A-Za-z_]\w*|\[\*\])+")
#: The forms that take a field, for the fields that not all forms take.
_OWNERS = {"value": "CONSTANT, JSONPATH, TEMPLATE, JSONATA or SQL", "template": "TEMPLATE", "steps": "FIELDS"}
_OWNERS["content_type"] = "TEMPLATE"
_OWNERS["missing"] = "JSONPATH, TEMPLATE, FIELDS or JSONATA"
_CHECKS: dict[str, Callable[[Mapping[Any, Any]], Iterable[TransformError]]] = {
    "ORIGINAL": _check_original,
    "CONSTANT": _check_constant,
    "JSONPATH": _check_jsonpath,
    "TEMPLATE": _check_template,
    "FIELDS": _check_fields,
    "JSONATA": _check_jsonata,
    "SQL": _check_sql,
}


def unused_names(names: Iterable[str], text: str, template: Template) -> Iterator[TransformError]:
    """Yield an error for each name without a placeholder `${name}` in the template, in the order of `names`.

    If the template contains the name as another template language writes it, such as `<name>` or `{{name}}`, the error
    gives the position of that placeholder.
    """
    inserted = {placeholder.name for placeholder in template.placeholders()}
    return (_unused(name, text) for name in names if name not in inserted)


def is_right_with_placeholders(names: Iterable[str], text: str, content_type: str | None = None) -> bool:
    """Return whether a template is valid once the placeholders of other languages for these names become `${name}`."""
    for name in names:
        text = _foreign_placeholder(name).sub(f"${{{name}}}", text)
    return not parse_template(text, content_type=content_type)[1]


def _unused(name: str, text: str) -> TransformError:
    if found := _foreign_placeholder(name).search(text):
        message = f"{found[0]} at {line_and_column(text, found.start())} is plain text and inserts no value"
        return error_at("$.template", message, text, f"Write ${{{name}}} instead of {found[0]}")
    remedy = f"Write ${{{name}}} where its value belongs, or remove the name"
    return error_at(member("$.value", name), f"the template does not use ${{{name}}}", name, remedy)


def _foreign_placeholder(name: str) -> re.Pattern[str]:
    exact = re.escape(name)
    return re.compile(
        rf"<\s*{exact}\s*>|\{{\{{\s*{exact}\s*\}}\}}|\$\$\{{{exact}\}}|\$\({exact}\)|%{exact}%|(?<!\$)\{{{exact}\}}"
        rf"|\${exact}(?![\w.-])"
    )
