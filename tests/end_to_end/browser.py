"""Airflow's pages in a real browser: log in, click, type, take a screenshot."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo.config import USER, DemoConfig
from playwright.sync_api import Page, expect, sync_playwright

#: The longest time in milliseconds for a page to load on a busy machine.
_PATIENCE = 60_000

#: The folder of the screenshots; `make screenshots` sets that of the docs.
_KEEP = "TEST_SCREENSHOTS"


class Browser:
    """One browser window that is logged in to Airflow."""

    def __init__(self, page: Page, config: DemoConfig, folder: Path) -> None:
        self.page = page
        self._config = config
        self._folder = Path(os.environ.get(_KEEP) or folder)

    def log_in(self) -> None:
        """Log in as the environment's user."""
        self.page.goto(f"{self._config.url}/auth/login?next=%2Fdags")
        self.page.get_by_label("Username").fill(USER)
        self.page.get_by_label("Password").fill(self._config.password)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url("**/dags")

    def open(self, path: str) -> None:
        """Show one of Airflow's pages."""
        self.page.goto(f"{self._config.url}/{path}")

    def picture(self, name: str) -> Path:
        """Take a screenshot."""
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / f"{name}.png"
        self.page.screenshot(path=file, animations="disabled")
        return file

    def trigger_form(self, dag_id: str) -> None:
        """Open the trigger form of a DAG."""
        self.open(f"dags/{dag_id}")
        self.page.get_by_role("button", name="Trigger").first.click()
        expect(self.page.get_by_text("Run Parameters")).to_be_visible()

    def backfill_form(self, dag_id: str) -> None:
        """Open the backfill form of a DAG."""
        self.open(f"dags/{dag_id}")
        self.page.get_by_role("button", name="Trigger").first.click()
        self.page.get_by_text("Run this Dag for a range of dates").click()
        expect(self.page.get_by_text("Reprocess Behavior")).to_be_visible()

    def backfill(self) -> None:
        """Submit the backfill form, and wait until it has closed."""
        self.page.get_by_role("button", name="Run Backfill").click()
        expect(self.page.get_by_text("Reprocess Behavior")).to_be_hidden()

    def fill(self, field: str, value: str) -> None:
        """Type into a field of the open form; `field` is the parameter's name."""
        self.page.locator(f"#element_{field}").fill(value)

    def choose(self, field: str, *values: str) -> None:
        """Choose several values of a field, by typing each; `field` is the parameter's name."""
        for value in values:
            self.page.locator(f"#element_{field} input[role=combobox]").fill(value)
            self.page.get_by_role("option", name=value, exact=True).click()

    def switch_off(self, field: str) -> None:
        """Switch off a field that is on; `field` is the parameter's name."""
        self.page.locator(f"label:has(input[name='element_{field}'])").click()

    def fill_time(self, label: str, day: str, time: str) -> None:
        """Choose a time (YYYY/MM/DD and HH:MM, UTC) in a date field of the open form."""
        # Airflow's date field is a button that opens a small dialog; its label is the text beside it.
        field = self.page.get_by_text(label, exact=True).locator(
            "xpath=ancestor::*[.//*[@data-testid='datetime-input']][1]"
        )
        field.get_by_test_id("datetime-input").click()
        # The small dialogs of other fields stay in the page.
        self.page.get_by_placeholder("YYYY/MM/DD").last.fill(day)
        self.page.get_by_placeholder("HH:mm").last.fill(time)
        self.page.get_by_placeholder("HH:mm").last.press("Enter")

    def trigger(self) -> None:
        """Submit the form, and wait until it has closed."""
        self.page.get_by_test_id("trigger-dag-submit").click()
        expect(self.page.get_by_test_id("trigger-dag-submit")).to_be_hidden()

    def set_slots(self, pool: str, slots: int) -> None:
        """Change the slots of a pool on the open page of pools."""
        self.page.get_by_text(f"{pool} (").locator("..").get_by_label("Edit Pool").click()
        dialog = self.page.get_by_role("dialog")
        dialog.locator("input[type=number]").fill(str(slots))
        dialog.get_by_role("button", name="Save").click()
        expect(dialog).to_be_hidden()


@contextmanager
def browsing(config: DemoConfig, folder: Path) -> Iterator[Browser]:
    """Open Debian's Chromium, without a screen, on the Airflow of an environment."""
    program = shutil.which("chromium")
    assert program is not None, "Chromium is missing: sudo apt-get install -y chromium"
    expect.set_options(timeout=_PATIENCE)
    with sync_playwright() as playwright:
        # A container has no user namespaces for Chromium's sandbox, and all pages are local.
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(_PATIENCE)
        try:
            browser = Browser(page, config, folder)
            browser.log_in()
            yield browser
        finally:
            chromium.close()
