"""Reads the type of a target or source, and the fields of a type that its model fully describes."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from eventbridge.errors import TypeUnusable
from eventbridge.rules.content import plain
from eventbridge.rules.fields import Fields
from eventbridge.rules.node import Node
from eventbridge.rules.registry import Registry
from eventbridge.rules.types import SourceType, TargetType, fields_of
from eventbridge.rules.vocabulary import FIELDS

Type = TypeVar("Type", TargetType, SourceType)
Model = TypeVar("Model", bound=BaseModel)


def read_type(fields: Fields, types: Registry[Type], later: tuple[str, ...]) -> Type | None:
    """Return the type that the field `type` names; types in `later` are errors: not in this version."""
    node = fields.get("type")
    try:
        found = None if node is None else types.find(node.value)
    except TypeUnusable as error:
        fields.add_to("type", error.what, error.remedy)
        return None
    if found is None:
        fields.choice("type", None, types.names(), later, required=True)
    return found


def likely_type(fields: Fields, types: Registry[Type]) -> Type:
    """Return the built-in type with the most given fields, so that errors in them can be reported anyway."""
    built_in = [types.get(name) for name in types.built_in]
    return max(built_in, key=lambda each: len(set(each.own_words) & set(fields.given())))


def close_fields(
    fields: Fields, types: Registry[Type], kind: Type | None, likely: Type, own: Collection[str], noun: str
) -> None:
    """Record every unknown field of a target or source (the `noun`); its type's own fields are `own`."""
    foreign: list[str] = [
        word for word in fields.given() if kind and word not in own and word in fields_of(fields.what)
    ]
    message = f"{_article(likely.name)} {likely.name} {noun} has no {{}}"
    fields.refuse([word for word in foreign if word not in FIELDS[fields.what]], message, "Remove it")
    # an unknown type may have any field of any type
    fields.close(own, [*foreign, *(() if kind else _words_of_all(types))])


def _words_of_all(types: Registry[Type]) -> set[str]:
    """Return the names of the fields of all types, except those whose package is unusable."""
    words: set[str] = set()
    for name in types.names():
        with suppress(TypeUnusable):
            words |= set(types.get(name).own_words)
    return words


def read_by_model(fields: Fields, model: type[Model], own: list[str], values: dict[str, Any]) -> Model | None:
    """Return the model of `values` and the given `own` fields; None if validation fails.

    Each validation error is recorded at its value.
    """
    nodes = {name: node for name in own if (node := fields.get(name)) is not None}
    try:
        return model(**values, **{name: plain(node.to_json()) for name, node in nodes.items()})
    except ValidationError as error:
        for each in error.errors(include_url=False, include_input=False):
            _note(fields, model, nodes, each["type"], [str(step) for step in each["loc"]], each["msg"])
        return None


def _note(
    fields: Fields, model: type[BaseModel], nodes: dict[str, Node], kind: str, steps: list[str], message: str
) -> None:
    name = steps[0] if steps else ""
    if kind == "missing" and len(steps) == 1:
        fields.get(name, required=not fields.has(name))  # a field without a value is recorded already
        return
    said = message.removeprefix("Value error, ")
    said = said[:1].lower() + said[1:].removesuffix(".")
    described = model.model_fields[name].description if name in model.model_fields else None
    remedy = f"It is {described}" if described else "Correct it"
    if name in nodes:
        fields.add(_deepest(nodes[name], steps[1:]), f"{name}: {said}", remedy)
    else:
        fields.add(fields.node, said, remedy)


def _deepest(node: Node, steps: list[str]) -> Node:
    for step in steps:
        children = node.value
        if isinstance(children, dict) and step in children:
            node = children[step]
        elif isinstance(children, list) and step.isdigit() and int(step) < len(children):
            node = children[int(step)]
    return node


def _article(word: str) -> str:
    """Return the indefinite article before a word; `http` is spelled out."""
    return "an" if word[:1].lower() in "aeio" or word.startswith("http") else "a"
