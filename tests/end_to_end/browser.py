"""Airflow's own pages in a real browser, as an operator has them: log in, click, type, take a picture."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo.places import USER, Places
from playwright.sync_api import Page, expect, sync_playwright

#: Milliseconds that a page may take to show something on a busy machine.
_PATIENCE = 60_000

#: A folder that keeps the pictures: `make screenshots` names that of the docs.
_KEEP = "TEST_SCREENSHOTS"


class Browser:
    """One browser window that is logged in to Airflow."""

    def __init__(self, page: Page, places: Places, folder: Path) -> None:
        self.page = page
        self._places = places
        self._folder = Path(os.environ.get(_KEEP) or folder)

    def open(self, path: str) -> None:
        """Show one of Airflow's pages; logs in where Airflow asks for it."""
        self.page.goto(f"{self._places.url}/{path}")
        if "/auth/login" in self.page.url:
            self.page.get_by_label("Username").fill(USER)
            self.page.get_by_label("Password").fill(self._places.password)
            self.page.get_by_role("button", name="Sign in").click()
            self.page.wait_for_url(re.compile(rf".*/{re.escape(path)}$"))

    def picture(self, name: str) -> Path:
        """Take a picture of what is shown now."""
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / f"{name}.png"
        self.page.screenshot(path=file, animations="disabled")
        return file

    def trigger_form(self, dag_id: str) -> None:
        """Open the form by which a DAG is triggered."""
        self.open(f"dags/{dag_id}")
        self.page.get_by_role("button", name="Trigger").first.click()
        expect(self.page.get_by_text("Run Parameters")).to_be_visible()


@contextmanager
def browsing(places: Places, folder: Path) -> Iterator[Browser]:
    """Open Debian's Chromium, without a screen, on the Airflow of an environment."""
    program = shutil.which("chromium")
    assert program is not None, "Chromium is missing: sudo apt-get install -y chromium"
    expect.set_options(timeout=_PATIENCE)
    with sync_playwright() as playwright:
        # A container has no user namespaces for Chromium's own sandbox, and the only pages are our own.
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(_PATIENCE)
        try:
            yield Browser(page, places, folder)
        finally:
            chromium.close()
