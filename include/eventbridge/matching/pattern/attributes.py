"""The keys at the top of a rule's pattern: CloudEvents attributes, extensions and `data`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from eventbridge.errors import PatternError
from eventbridge.matching.pattern.expression import ExpressionSizes
from eventbridge.matching.pattern.location import Location
from eventbridge.matching.pattern.parse import find_errors
from eventbridge.matching.pattern.raw import shown
from eventbridge.similar_names import similar

ATTRIBUTES: Final = (
    "id",
    "source",
    "specversion",
    "type",
    "subject",
    "time",
    "datacontenttype",
    "dataschema",
    "data",
)
"""The attributes of CloudEvents 1.0, and `data`; any other name of lower-case letters and digits is an extension."""

_EXTENSION = re.compile("[a-z0-9]+")
_OF_OTHER_BUSES: Final = {"detail-type": "type", "detail": "data", "detailType": "type", "eventType": "type"}


def rule_pattern_errors(pattern: Mapping[Any, Any], expressions: ExpressionSizes | None = None) -> list[PatternError]:
    """Return all errors in the pattern of a rule: those of `find_errors`, and keys that no CloudEvent has.

    Below the top level, in `data`, any key goes.
    """
    errors = find_errors(pattern, expressions)
    if isinstance(pattern, Mapping):
        top = Location(errors=errors)
        _check(pattern, top)
    return errors


def _check(pattern: Mapping[Any, Any], here: Location) -> None:
    for key, value in pattern.items():
        if key == "$not" and isinstance(value, Mapping):
            _check(value, here / key)
        elif key == "$or" and isinstance(value, (list, tuple)):
            for index, alternative in enumerate(value):
                if isinstance(alternative, Mapping):
                    _check(alternative, here / key / index)
        elif isinstance(key, str) and key not in ("$or", "$not"):
            _check_attribute(key, value, here / key)


def _check_attribute(key: str, value: Any, here: Location) -> None:
    if key in ("data_base64", "database64"):
        remedy = "Match an attribute such as type, source or subject instead."
        here.wrong("binary data cannot be matched", value, remedy)
    elif not _EXTENSION.fullmatch(key):
        meant = _OF_OTHER_BUSES.get(key) or next(iter(similar(key.lower(), ATTRIBUTES)), None)
        remedy = (
            f'Did you mean "{meant}"?'
            if meant
            else f'What is inside the data stands below it: "data": {{"{key}": ...}}.'
        )
        here.wrong(f"{shown(key)} is not a CloudEvents attribute (lower-case letters and digits)", value, remedy)
    elif isinstance(value, Mapping) and value and key != "data":
        meant = _OF_OTHER_BUSES.get(key) or next(iter(similar(key, ["data"])), None)
        remedy = f'Did you mean "{meant}"?' if meant else f'Write a list of values, or "data": {{"{key}": ...}}.'
        here.wrong(f"the attribute {shown(key)} has nothing inside: only data is an object", value, remedy)
