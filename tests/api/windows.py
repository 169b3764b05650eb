"""A headless browser, for the tests of the page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright


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
