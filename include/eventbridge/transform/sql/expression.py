"""The only path of an SQL expression from a rule to Spark: it is parsed, checked, and rewritten from its tree."""

from __future__ import annotations

from eventbridge.transform.sql.error import SqlError
from eventbridge.transform.sql.parser import MAXIMUM_CHARACTERS, Parser
from eventbridge.transform.sql.tree import Node


def parse_sql(text: str) -> Node:
    """Return the tree of an expression; raises SqlError with the place of whatever is not allowed in one."""
    if len(text) > MAXIMUM_CHARACTERS:
        problem = f"the expression has {len(text):,} characters, and {MAXIMUM_CHARACTERS:,} are the most"
        raise SqlError(problem, "Shorten it")
    return Parser(text).whole()


def expression_problem(text: str) -> tuple[str, str] | None:
    """Return what is wrong with an expression, and the remedy; None if nothing is that can be seen without Spark."""
    try:
        parse_sql(text)
    except SqlError as error:
        return error.problem, error.remedy
    return None
