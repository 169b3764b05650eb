"""Lists whose body is that of the command line, some at a time: the address of what follows is in the header `Link`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Query, Request, Response

from eventbridge.api.reading import run_for_caller, written
from eventbridge.errors import UserError
from eventbridge.model.cursor import read_name_cursor, write_name_cursor
from eventbridge.stages.runtime.runtime import Runtime

Item = TypeVar("Item")
Limit = Annotated[int, Query(ge=1, le=10_000, description="At most so many; header Link says where more are.")]

#: What one page has, if nothing else is asked for.
MOST = 500


def paged(
    items: Sequence[Item], name: Callable[[Item], Sequence[str]], limit: int, cursor: str | None
) -> tuple[Sequence[Item], str | None]:
    """Return what follows the item that a cursor names, and the cursor of what follows that; None: nothing does.

    Raises UserError for a cursor that is invalid, or names what is not there any more.
    """
    first = 0
    if cursor:
        behind = read_name_cursor(cursor, len(name(items[0])) if items else 1)
        first = next((place for place, each in enumerate(items, 1) if tuple(name(each)) == behind), -1)
        if first < 0:
            raise UserError("what the cursor names is not there any more. Begin again without it")
    last = first + limit
    return items[first:last], write_name_cursor(*name(items[last - 1])) if last < len(items) else None


def page(request: Request, find: Callable[[Runtime], tuple[Any, str | None]]) -> Response:
    """Return what `find` finds, with a header that leads to what follows, by the cursor beside it."""
    found, cursor = run_for_caller(request, find)
    response = written(request, found)
    if cursor is not None:
        following = request.url.include_query_params(cursor=cursor)
        response.headers["link"] = f'<{following.path}?{following.query}>; rel="next"'
    return response
