"""A headless browser, for the tests of the page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, expect, sync_playwright


@contextmanager
def open_chromium() -> Iterator[Browser]:
    """Open Debian's Chromium for the block."""
    program = shutil.which("chromium")
    assert program is not None, "Chromium is missing: sudo apt-get install -y chromium"
    with sync_playwright() as playwright:
        # A container has no user namespaces for Chromium's sandbox, and all pages are local.
        opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield opened
        finally:
            opened.close()


def log_in(page: Page, url: str, token: str) -> None:
    """Log in to the page of a server, and wait for the overview."""
    page.goto(f"{url}/page")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
