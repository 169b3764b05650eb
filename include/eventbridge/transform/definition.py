"""Everything that can be wrong with a transform as a rule file defines it; told when the file is read."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from eventbridge.document import as_json_value
from eventbridge.errors import EventError, TransformError
from eventbridge.transform.fill import PREDEFINED
from eventbridge.transform.jsonpath import Path, parse_path
from eventbridge.transform.template import NAME, parse_template

FORMS: Final = ("ORIGINAL", "CONSTANT", "JSONPATH", "TEMPLATE")
LATER_FORMS: Final = ("FIELDS", "JSONATA", "SQL")
FIELDS: Final = ("form", "value", "template", "missing")
LATER_FIELDS: Final = ("steps",)


def transform_mistakes(definition: object) -> list[TransformError]:
    """Return every mistake of a transform as a rule file has it, each with its JSON path below the transform.

    `definition` is the mapping of fields: form, value, template, missing. None stands for a field that is not there,
    except in `value`, where it is JSON's null.
    """
    if not isinstance(definition, Mapping):
        return [_mistake("$", "a transform is a mapping", definition, "Write form: ORIGINAL, or another form")]
    mistakes = [_unknown_field(name) for name in definition if name not in FIELDS]
    if definition.get("missing") not in (None, "null", "error"):
        message = f"missing is {_shown(definition['missing'])}, and can be null or error"
        mistakes.append(_mistake("$.missing", message, definition["missing"], "Write missing: error, or remove it"))
    form = definition.get("form")
    check = _CHECKS.get(form if isinstance(form, str) else _implied(definition))
    if check is None or (form is not None and not isinstance(form, str)):
        return [*mistakes, _unknown_form(form)]
    return [*mistakes, *check(definition)]


def sources(value: object) -> tuple[dict[str, Path | Any], list[TransformError]]:
    """Return what each name under a template's `value` stands for, a Path or a constant, and the mistakes.

    Text that begins with `$` is a path; `$$` at the beginning stands for a `$` of a constant.
    """
    if value is None:
        return {}, []
    if not isinstance(value, Mapping):
        remedy = "Write one line per name, such as id: $.data.id"
        return {}, [_mistake("$.value", "the value of a TEMPLATE is a mapping of names", value, remedy)]
    found: dict[str, Path | Any] = {}
    mistakes: list[TransformError] = []
    for name, source in value.items():
        where = _member("$.value", name)
        if problem := _name_problem(name):
            mistakes.append(_mistake(where, *problem))
            continue
        try:
            found[name] = _source(source, where)
        except TransformError as error:
            mistakes.append(error)
            found[name] = None
    return found, mistakes


def _source(source: object, where: str) -> Path | Any:
    if isinstance(source, str) and source.startswith("$$"):
        return source[1:]
    if isinstance(source, str) and source.startswith("$"):
        return parse_path(source, where)
    return _constant(source, where)


def _constant(value: object, where: str) -> Any:
    try:
        return as_json_value(value)
    except EventError as error:
        raise _mistake(
            where, f"the constant is no JSON: {error}", value, "Put quotes around it to make it text"
        ) from None


def _name_problem(name: object) -> tuple[str, object, str] | None:
    if not isinstance(name, str):
        return f"the name {name!r} is no text", name, "Put quotes around it"
    if name.startswith("eb."):
        return f"the name {name} is taken: eb. is for what is predefined", name, "Choose another name"
    if not NAME.fullmatch(name):
        return f"{name!r} cannot be a name", name, "Use letters, digits and _ . - only, a letter, digit or _ first"
    return None


def _check_original(definition: Mapping[Any, Any]) -> Iterable[TransformError]:
    for field in ("value", "template"):
        if definition.get(field) is not None:
            yield _superfluous(field, "ORIGINAL")


def _check_constant(definition: Mapping[Any, Any]) -> Iterable[TransformError]:
    if definition.get("template") is not None:
        yield _superfluous("template", "CONSTANT")
    if "value" not in definition:
        yield _mistake("$", "a CONSTANT needs a value", None, "Write value: and what every delivery is to hold")
        return
    try:
        _constant(definition["value"], "$.value")
    except TransformError as error:
        yield error


def _check_jsonpath(definition: Mapping[Any, Any]) -> Iterable[TransformError]:
    if definition.get("template") is not None:
        yield _superfluous("template", "JSONPATH")
    value = definition.get("value")
    if not isinstance(value, str):
        where = "$" if value is None else "$.value"
        yield _mistake(
            where, "a JSONPATH needs a path as its value", value, "Write value: $.data.name, or $ for the data"
        )
        return
    try:
        parse_path(value, "$.value")
    except TransformError as error:
        yield error


def _check_template(definition: Mapping[Any, Any]) -> Iterable[TransformError]:
    names, mistakes = sources(definition.get("value"))
    yield from mistakes
    text = definition.get("template")
    if not isinstance(text, str) or not text:
        where = "$" if text is None else "$.template"
        yield _mistake(where, "a TEMPLATE needs a text as its template", text, "Write template: 'text with ${name}'")
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
    return _mistake("$.template", f"${{{name}}} at {at} is not defined", text, remedy)


def _unknown_field(name: object) -> TransformError:
    where = _member("$", name)
    if name in LATER_FIELDS:
        return _mistake(where, f"{name} is not in this version", name, f"Use {', '.join(FIELDS)}")
    near = difflib.get_close_matches(str(name), FIELDS, n=1)
    remedy = f"Did you mean {near[0]}?" if near else f"The fields are {', '.join(FIELDS)}"
    return _mistake(where, f"a transform has no field {name}", name, remedy)


def _unknown_form(form: object) -> TransformError:
    forms = f"{', '.join(FORMS[:-1])} or {FORMS[-1]}"
    if form in LATER_FORMS:
        return _mistake("$.form", f"the form {form} is not in this version", form, f"Use {forms}")
    if form is None:
        return _mistake("$", "the transform has no form", form, f"Write form: and one of {forms}")
    near = difflib.get_close_matches(str(form).upper(), [*FORMS, *LATER_FORMS], n=1)
    remedy = f"Did you mean {near[0]}?" if near else f"Use {forms}"
    return _mistake("$.form", f"there is no form {_shown(form)}", form, remedy)


def _implied(definition: Mapping[Any, Any]) -> str:
    """Return the form of a transform that names none: only one without anything else is ORIGINAL."""
    bare = definition.get("value") is None and definition.get("template") is None
    return "ORIGINAL" if bare else ""


def _superfluous(field: str, form: str) -> TransformError:
    remedy = f"Remove it, or write form: {'TEMPLATE' if field == 'template' else 'CONSTANT, JSONPATH or TEMPLATE'}"
    return _mistake(f"$.{field}", f"the form {form} takes no {field}", form, remedy)


def _member(path: str, name: object) -> str:
    plain = isinstance(name, str) and NAME.fullmatch(name) and "." not in name
    return f"{path}.{name}" if plain else f"{path}[{json.dumps(str(name), ensure_ascii=False)}]"


def _shown(value: object) -> str:
    return repr(value) if isinstance(value, str) else str(value)


def _mistake(path: str, message: str, value: object, remedy: str) -> TransformError:
    full_stop = "" if remedy.endswith("?") else "."
    return TransformError(message, path=path, value=value, remedy=remedy + full_stop)


_CHECKS: dict[str, Callable[[Mapping[Any, Any]], Iterable[TransformError]]] = {
    "ORIGINAL": _check_original,
    "CONSTANT": _check_constant,
    "JSONPATH": _check_jsonpath,
    "TEMPLATE": _check_template,
}
