"""Everything that can be wrong with a transform as a rule file defines it; told when the file is read."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from eventbridge.errors import TransformError
from eventbridge.transform.fields import read_steps
from eventbridge.transform.fill import PREDEFINED
from eventbridge.transform.jsonata.expression import expression_mistake
from eventbridge.transform.jsonpath import parse_path
from eventbridge.transform.mistake import either, member, mistake, nearest, shown
from eventbridge.transform.source import constant, sources
from eventbridge.transform.sql_check import expression_problem
from eventbridge.transform.template import parse_template

FORMS: Final = ("ORIGINAL", "CONSTANT", "JSONPATH", "TEMPLATE", "FIELDS", "JSONATA", "SQL")
FIELDS: Final = ("form", "value", "template", "steps", "missing")


def transform_mistakes(definition: object) -> list[TransformError]:
    """Return every mistake of a transform as a rule file has it, each with its JSON path below the transform.

    `definition` is the mapping of fields: form, value, template, steps, missing. None stands for a field that is not
    there, except in `value`, where it is JSON's null.
    """
    if not isinstance(definition, Mapping):
        return [mistake("$", "a transform is a mapping", definition, "Write form: ORIGINAL, or another form")]
    mistakes = [_unknown_field(name) for name in definition if name not in FIELDS]
    words = ("skip", "error") if definition.get("form") == "FIELDS" else ("null", "error")
    if definition.get("missing") not in (None, *words):
        message = f"missing is {shown(definition['missing'])}, and can be {either(words)}"
        mistakes.append(mistake("$.missing", message, definition["missing"], "Write missing: error, or remove it"))
    form = definition.get("form")
    check = _CHECKS.get(form if isinstance(form, str) else _implied(definition))
    if check is None or (form is not None and not isinstance(form, str)):
        return [*mistakes, _unknown_form(form)]
    return [*mistakes, *check(definition)]


def _check_original(definition: Mapping[Any, Any]) -> Iterable[TransformError]:
    yield from _superfluous(definition, "ORIGINAL", "value", "template", "steps")


def _check_constant(definition: Mapping[Any, Any]) -> Iterable[TransformError]:
    yield from _superfluous(definition, "CONSTANT", "template", "steps")
    if "value" not in definition:
        yield mistake("$", "a CONSTANT needs a value", None, "Write value: and what every delivery is to hold")
        return
    try:
        constant(definition["value"], "$.value")
    except TransformError as error:
        yield error


def _check_jsonpath(definition: Mapping[Any, Any]) -> Iterable[TransformError]:
    yield from _superfluous(definition, "JSONPATH", "template", "steps")
    value = definition.get("value")
    if not isinstance(value, str):
        where = "$" if value is None else "$.value"
        yield mistake(
            where, "a JSONPATH needs a path as its value", value, "Write value: $.data.name, or $ for the data"
        )
        return
    try:
        parse_path(value, "$.value")
    except TransformError as error:
        yield error


def _check_fields(definition: Mapping[Any, Any]) -> Iterable[TransformError]:
    yield from _superfluous(definition, "FIELDS", "value", "template")
    yield from read_steps(definition.get("steps"), missing_is_error=definition.get("missing") == "error")[1]


def _check_jsonata(definition: Mapping[Any, Any]) -> Iterable[TransformError]:
    yield from _superfluous(definition, "JSONATA", "template", "steps")
    value = definition.get("value")
    if not isinstance(value, str):
        where = "$" if value is None else "$.value"
        yield mistake(where, "a JSONATA needs an expression as its value", value, "Write value: data.name")
    elif found := expression_mistake(value, "$.value"):
        yield found


def _check_sql(definition: Mapping[Any, Any]) -> Iterable[TransformError]:
    yield from _superfluous(definition, "SQL", "template", "steps")
    value = definition.get("value")
    if not isinstance(value, str):
        where = "$" if value is None else "$.value"
        yield mistake(where, "an SQL needs an expression as its value", value, "Write value: data:name::string")
    elif problem := expression_problem(value):
        yield mistake("$.value", problem[0], value, problem[1])


def _check_template(definition: Mapping[Any, Any]) -> Iterable[TransformError]:
    yield from _superfluous(definition, "TEMPLATE", "steps")
    names, mistakes = sources(definition.get("value"))
    yield from mistakes
    text = definition.get("template")
    if not isinstance(text, str) or not text:
        where = "$" if text is None else "$.template"
        yield mistake(where, "a TEMPLATE needs a text as its template", text, "Write template: 'text with ${name}'")
        return
    template, mistakes = parse_template(text, "$.template")
    yield from mistakes
    for placeholder in template.placeholders():
        if placeholder.name not in names and placeholder.name not in PREDEFINED:
            yield _unknown_name(placeholder.name, placeholder.at, text, [*names, *PREDEFINED])


def _unknown_name(name: str, at: str, text: str, known: list[str]) -> TransformError:
    near = difflib.get_close_matches(name, known, n=1)
    meant = f"Did you mean ${{{near[0]}}}? If not, define" if near else "Define"
    remedy = f"{meant} {name} under value, such as {name}: $.data.{name}; for the text itself write $${{{name}}}"
    return mistake("$.template", f"${{{name}}} at {at} is not defined", text, remedy)


def _unknown_field(name: object) -> TransformError:
    remedy = nearest(name, FIELDS, f"The fields are {', '.join(FIELDS)}")
    return mistake(member("$", name), f"a transform has no field {name}", name, remedy)


def _unknown_form(form: object) -> TransformError:
    forms = either(FORMS)
    if form is None:
        return mistake("$", "the transform has no form", form, f"Write form: and one of {forms}")
    remedy = nearest(str(form).upper(), FORMS, f"Use {forms}")
    return mistake("$.form", f"there is no form {shown(form)}", form, remedy)


def _implied(definition: Mapping[Any, Any]) -> str:
    """Return the form of a transform that names none: only one without anything else is ORIGINAL."""
    bare = all(definition.get(field) is None for field in ("value", "template", "steps"))
    return "ORIGINAL" if bare else ""


def _superfluous(definition: Mapping[Any, Any], form: str, *fields: str) -> Iterable[TransformError]:
    for field in fields:
        if definition.get(field) is not None:
            yield mistake(
                f"$.{field}",
                f"the form {form} takes no {field}",
                form,
                f"Remove it, or write form: {_OWNERS[field]}",
            )


#: The forms that take a field which not all take.
_OWNERS = {"value": "CONSTANT, JSONPATH, TEMPLATE, JSONATA or SQL", "template": "TEMPLATE", "steps": "FIELDS"}
_CHECKS: dict[str, Callable[[Mapping[Any, Any]], Iterable[TransformError]]] = {
    "ORIGINAL": _check_original,
    "CONSTANT": _check_constant,
    "JSONPATH": _check_jsonpath,
    "TEMPLATE": _check_template,
    "FIELDS": _check_fields,
    "JSONATA": _check_jsonata,
    "SQL": _check_sql,
}
