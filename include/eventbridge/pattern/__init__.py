"""The filter pattern language of docs/pattern-language.md: nodes, parser, printer; called by rules and matchers."""

from eventbridge.pattern.attributes import rule_pattern_errors
from eventbridge.pattern.expression import ExpressionSizes
from eventbridge.pattern.impossible import pattern_warnings
from eventbridge.pattern.nodes import OPERATORS, Pattern
from eventbridge.pattern.parse import find_errors, parse_pattern
from eventbridge.pattern.write import write_pattern

__all__ = [
    "OPERATORS",
    "ExpressionSizes",
    "Pattern",
    "find_errors",
    "parse_pattern",
    "pattern_warnings",
    "rule_pattern_errors",
    "write_pattern",
]
