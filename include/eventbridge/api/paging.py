"""Paged lists with the documents of the command line; the header `Link` has the URL of the next page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Query, Request, Response

from eventbridge.api.documents import json_response, run_for_caller
from eventbridge.errors import UserError
from eventbridge.model.cursor import read_name_cursor, write_name_cursor
from eventbridge.runtime.runtime import Runtime

Item = TypeVar("Item")
Limit = Annotated[
    int, Query(ge=1, le=10_000, description="Items to return at most; the header Link has the next page.")
]

#: Items of one page by default.
MOST = 500


def page_of(
    items: Sequence[Item], name: Callable[[Item], Sequence[str]], limit: int, cursor: str | None
) -> tuple[Sequence[Item], str | None]:
    """Return the items after the one that the cursor names, and the cursor of the next page (None: this is the last).

    Raises UserError if the cursor is invalid, or if its item does not exist any more.
    """
    first = 0
    if cursor:
        behind = read_name_cursor(cursor, len(name(items[0])) if items else 1)
        first = next((place for place, each in enumerate(items, 1) if tuple(name(each)) == behind), -1)
        if first < 0:
            raise UserError("the item of the cursor does not exist any more. Start again without a cursor")
    last = first + limit
    return items[first:last], write_name_cursor(*name(items[last - 1])) if last < len(items) else None


def page_response(request: Request, find: Callable[[Runtime], tuple[Any, str | None]]) -> Response:
    """Return the items of `find` as JSON, with a header `Link` made of its cursor."""
    found, cursor = run_for_caller(request, find)
    response = json_response(request, found)
    if cursor is not None:
        following = request.url.include_query_params(cursor=cursor)
        response.headers["link"] = f'<{following.path}?{following.query}>; rel="next"'
    return response
