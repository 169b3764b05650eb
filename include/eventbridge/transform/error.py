"""Builds the errors in a transform's definition, and the parts of their messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final

from eventbridge.errors import TransformError
from eventbridge.similar_names import similar

#: The pattern of a name in a template: letters, digits and `_ . -`.
NAME: Final = re.compile(r"\w[\w.-]*")


def error_at(path: str, message: str, value: object, remedy: str) -> TransformError:
    """Return an error at a JSON path inside the transform; the remedy gets a full stop unless it is a question."""
    full_stop = "" if remedy.endswith("?") else "."
    return TransformError(message, path=path, value=value, remedy=remedy + full_stop)


def member(path: str, name: object) -> str:
    """Return the JSON path of a member, such as `$.value.id` or `$.value["a b"]`."""
    plain = isinstance(name, str) and NAME.fullmatch(name) and "." not in name
    return f"{path}.{name}" if plain else f"{path}[{json.dumps(str(name), ensure_ascii=False)}]"


def format_value(value: object) -> str:
    """Return a value in the form for messages; a string is in quotes."""
    return repr(value) if isinstance(value, str) else str(value)


def either(words: Iterable[str]) -> str:
    """Return words as a list that ends with `or`."""
    listed = list(words)
    return f"{', '.join(listed[:-1])} or {listed[-1]}" if len(listed) > 1 else listed[0]


def nearest(name: object, known: Iterable[str], otherwise: str) -> str:
    """Return `Did you mean x?` with the known name nearest to `name`, or `otherwise` if none is near."""
    near = similar(str(name), known)
    return f"Did you mean {near[0]}?" if near else otherwise
