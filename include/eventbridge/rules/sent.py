"""Reads a pattern or a transform that a request contains, as JSON or as in a rule file, and writes them as YAML."""

from __future__ import annotations

from typing import Any, Final

import yaml

from eventbridge.errors import EventError, PatternError, RuleError, TransformError, UserError
from eventbridge.event.json_document import Number, parse_document, parse_value, write_document
from eventbridge.matching.pattern.nodes import Pattern
from eventbridge.matching.pattern.parse import parse_pattern
from eventbridge.rules.bounds import MAX_BYTES_FOR_LOCATIONS, BoundedErrors, parse_sent_pattern
from eventbridge.rules.model import Transform
from eventbridge.rules.node import Node, located
from eventbridge.rules.yaml_tree import read_yaml
from eventbridge.transform import transform_errors

_STRING: Final = "tag:yaml.org,2002:str"


def read_sent_pattern(text: str) -> Pattern:
    """Return the pattern that JSON or YAML text describes. Raises UserError, with the line and path of the error.

    The limits of `rules.bounds` apply.
    """
    try:
        parse_document(text.encode("utf-8", "surrogatepass"))
    except EventError:
        top = _node(text, "pattern")
        try:
            return parse_pattern(write_document(top.to_json()))
        except PatternError as error:
            raise _user_error("pattern", error, top) from None
    try:
        return parse_sent_pattern(text)
    except PatternError as error:
        if "\n" not in text or len(text) > MAX_BYTES_FOR_LOCATIONS:
            raise UserError(f"This is not a pattern: {error}") from None
        raise _user_error("pattern", error, _node(text, "pattern")) from None


def read_sent_transform(text: str) -> Transform:
    """Return the transform that JSON or YAML text describes. Raises UserError, with the line and path of the error.

    The limits of `rules.bounds` apply.
    """
    top = _node(text, "transform")
    definition = top.to_json()
    for error in transform_errors(definition):
        raise _user_error("transform", error, top)
    return Transform(**{name: value for name, value in definition.items() if name == "value" or value is not None})


def _node(text: str, noun: str) -> Node:
    errors: list[RuleError] = BoundedErrors()
    top = read_yaml(text.encode("utf-8", "replace"), noun, errors, bounded=True)
    for error in errors:
        raise _located_error(noun, error)
    if top is None:
        raise UserError(f"This is not a {noun}: it is empty. Write a mapping, as in a rule file")
    return top


def _user_error(noun: str, error: PatternError | TransformError, top: Node) -> UserError:
    found = located(error, top)
    return UserError(f"This is not a {noun}: {error}") if found is None else _located_error(noun, found)


def _located_error(noun: str, error: RuleError) -> UserError:
    return UserError(f"This is not a {noun}: line {error.line}, {error.path}: {error.message}. {error.remedy}")


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # its stubs are not installed
    """Writes numbers as they were written, and never an anchor."""

    def serialize(self, node: yaml.Node) -> None:
        if isinstance(node, yaml.MappingNode):
            node.flow_style = False  # the outermost mapping has a line for each key
        super().serialize(node)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _number_node(dumper: yaml.SafeDumper, number: Number) -> yaml.ScalarNode:
    tag = dumper.resolve(yaml.ScalarNode, number.text, (True, False))  # any other tag would be written
    return dumper.represent_scalar(tag, number.text)


def _string_node(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(_STRING, text, style="|" if "\n" in text else None)


_Dumper.add_representer(Number, _number_node)
_Dumper.add_representer(str, _string_node)


def yaml_text(document: object) -> str:
    """Return a JSON value as YAML text in the form of rule files: short mappings and lists on one line.

    A value that YAML text cannot hold exactly, or that would make a long text, is returned as JSON, which is YAML too.
    """
    written = write_document(document)
    if len(written) > MAX_BYTES_FOR_LOCATIONS:
        return written
    plain = parse_value(written)
    text = yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110, default_flow_style=None)
    errors: list[RuleError] = []
    read = read_yaml(text.encode("utf-8", "surrogatepass"), "text", errors)
    return text if read is not None and not errors and write_document(read.to_json()) == written else written


def transform_text(transform: Transform) -> str:
    """Return a transform as YAML text, without the fields that have their defaults."""
    usual = Transform(form=transform.form)
    fields = {name: value for name in transform.model_fields_set if (value := getattr(transform, name)) is not None}
    return yaml_text(
        {"form": transform.form}
        | {
            name: fields[name]
            for name in Transform.model_fields
            if name in fields and fields[name] != getattr(usual, name)
        }
    )


def changed_rule_text(text: str, name: str, pattern: str, target: str = "", transform: str = "") -> str | None:
    """Return a rule file that has only the rule `name`, with a changed pattern and the changed transform of a target.

    `text` is the rule as its file has it; an empty pattern or transform stays as it is. Returns None for a long text.
    Raises UserError for text that is not YAML.
    """
    if len(text) + len(pattern) + len(transform) > MAX_BYTES_FOR_LOCATIONS:
        return None
    document = _node(f"rules:\n{text}", "rule file").to_json()
    rule = document["rules"][name]
    if pattern.strip():
        rule["pattern"] = _node(pattern, "pattern").to_json()
    if transform.strip():
        rule["targets"][target]["transform"] = _node(transform, "transform").to_json()
    return yaml_text(document)
