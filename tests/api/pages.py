"""What a browser does with the forms of the page; serves the tests of the page."""

from __future__ import annotations

import re

import httpx

OWN = {"sec-fetch-site": "same-origin"}


def key_of(browser: httpx.Client) -> str:
    """Return what only the forms of this login have."""
    (key,) = set(re.findall(r'name="key" value="([0-9a-f]+)"', browser.get("/page/rules/refused/test").text))
    return str(key)


def post(browser: httpx.Client, path: str, **fields: str) -> httpx.Response:
    """Send a form of the page as a browser does."""
    return browser.post(f"/page{path}", data={"key": key_of(browser), **fields}, headers=OWN)
