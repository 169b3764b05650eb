"""The one way of an SQL expression from a rule to Spark: checked, and written again from its tree."""

from __future__ import annotations

from eventbridge.transform.sql.mistake import SqlMistake
from eventbridge.transform.sql.parser import MAXIMUM_CHARACTERS, Parser
from eventbridge.transform.sql.tree import Node


def parse_sql(text: str) -> Node:
    """Return the tree of an expression; raises SqlMistake with the place of whatever is not allowed in one."""
    if len(text) > MAXIMUM_CHARACTERS:
        problem = f"the expression has {len(text):,} characters, and {MAXIMUM_CHARACTERS:,} are the most"
        raise SqlMistake(problem, "Shorten it")
    return Parser(text).whole()


def expression_problem(text: str) -> tuple[str, str] | None:
    """Return what is wrong with an expression, and the remedy; None if nothing is that can be seen without Spark."""
    try:
        parse_sql(text)
    except SqlMistake as mistake:
        return mistake.problem, mistake.remedy
    return None
