"""Converts an event to the output for a target, as docs/reference/transforms.md describes."""

from eventbridge.transform.definition import transform_errors
from eventbridge.transform.jsonpath import find_order_key, order_path_problem
from eventbridge.transform.render import compile_transform
from eventbridge.transform.rendered import Budget, Rendered, Renderer, Scope

__all__ = [
    "Budget",
    "Rendered",
    "Renderer",
    "Scope",
    "compile_transform",
    "find_order_key",
    "order_path_problem",
    "transform_errors",
]
