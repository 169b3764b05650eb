"""Defines the filter pattern language of docs/reference/patterns.md: its nodes, its parser and its printer."""

from eventbridge.matching.pattern.expression import ExpressionSizes
from eventbridge.matching.pattern.nodes import OPERATORS, Pattern
from eventbridge.matching.pattern.parse import find_errors, parse_pattern
from eventbridge.matching.pattern.rule_patterns import pattern_warnings, rule_pattern_errors
from eventbridge.matching.pattern.write import write_pattern

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
