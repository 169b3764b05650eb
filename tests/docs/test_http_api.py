"""docs/reference/http-api.md describes the calls as openapi.json does."""

from __future__ import annotations

from docs.http_api import PAGE, page


def test_the_page_is_generated() -> None:
    """It matches the application."""
    assert PAGE.read_text() == page(), "run: PYTHONPATH=tests python -m docs.http_api"
