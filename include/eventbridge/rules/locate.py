"""Finds the value of a rule file that an error in a pattern or transform is about."""

from __future__ import annotations

import re

from eventbridge.errors import PatternError, RuleError, TransformError
from eventbridge.rules.node import Node

# .name, [0], ["any text"] or ['any text']
_STEP = re.compile(r"""\.([^.\[\]"']+)|\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]|\['((?:[^'\\]|\\.)*)'\]""", re.DOTALL)


def located(error: PatternError | TransformError, top: Node) -> RuleError | None:
    """Return an error inside the value `top` as an error of its file, located at the deepest value on its path.

    None if that value already has an error, of which this one is a consequence.
    """
    node = _find(top, error.path)
    if node.is_spoilt_within():
        return None
    path = top.path + error.path.removeprefix("$")
    return node.key.error(path, error.message, error.remedy or "Correct it")


def _find(top: Node, path: str) -> Node:
    node = top
    for name, index, *quoted in _STEP.findall(path):
        step = name or re.sub(r"\\(.)", r"\1", "".join(quoted), flags=re.DOTALL)
        if index and isinstance(node.value, list) and int(index) < len(node.value):
            node = node.value[int(index)]
        elif not index and isinstance(node.value, dict) and step in node.value:
            node = node.value[step]
        else:
            return node
    return node
