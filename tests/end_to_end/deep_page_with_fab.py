"""The page in an Airflow with the auth manager FAB below a base path, in a real browser; part of `make test-deep`."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from services.fab import fetch_fab

pytestmark = pytest.mark.timeout(900)

RULES = """
buses: {orders: {source: {type: embedded}}}
rules:
  all: {bus: orders, pattern: {}, targets: {file: {type: file, path: /tmp/never-written/x.jsonl}}}
"""
_PATIENCE_MS = 60_000
_START_SECONDS = 300


@dataclass(frozen=True)
class Site:
    """An Airflow whose users and passwords are named like their roles. Outsider may not read task logs."""

    url: str
    chromium: Browser

    @contextmanager
    def window(self, role: str, path: str) -> Iterator[Page]:
        """Log in and open a window on a page."""
        with closing(self.chromium.new_context(viewport={"width": 1280, "height": 900})) as context:
            page = context.new_page()
            page.set_default_timeout(_PATIENCE_MS)
            page.goto(f"{self.url}/auth/login/?next={self.url}/")
            page.locator("input#username").fill(role)
            page.locator("input#password").fill(role)
            page.locator("input[type=submit]").click()
            page.wait_for_url(lambda url: "/auth/" not in url)  # otherwise the next request may come before the login
            page.goto(f"{self.url}{path}")
            yield page


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Start the api-server of an Airflow with three users, and a browser."""
    folder = tmp_path_factory.mktemp("fab")
    (folder / "rules").mkdir()
    (folder / "rules" / "rules.yaml").write_text(RULES)
    (folder / "dags").mkdir()
    # FAB limits the rate of logins
    (folder / "webserver_config.py").write_text("AUTH_TYPE = 1\nAUTH_RATE_LIMITED = False\nRATELIMIT_ENABLED = False\n")
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/af"
    environ = {
        **os.environ,
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__AUTH_MANAGER": "airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/airflow.db",
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__API__SECRET_KEY": "x" * 32,
        "AIRFLOW__API_AUTH__JWT_SECRET": "x" * 64,
        "EVENTBRIDGE_HOME": str(folder / "home"),
        "EVENTBRIDGE_RULES_FOLDER": str(folder / "rules"),
        "PYTHONPATH": str(fetch_fab()),
    }
    airflow = [sys.executable, "-m", "airflow"]
    subprocess.run([*airflow, "db", "migrate"], env=environ, check=True, capture_output=True)
    seen = ["-a", "can_read", "-r", "DAGs", "DAG Runs"]
    for command in (["create", "Outsider"], ["add-perms", "Outsider", *seen]):
        subprocess.run([*airflow, "roles", *command], env=environ, check=True, capture_output=True)
    for role in ("Admin", "User", "Viewer", "Outsider"):
        names = ["--username", role, "--password", role, "--firstname", role, "--lastname", role]
        command = [*airflow, "users", "create", *names, "--email", f"{role}@example.org", "--role", role]
        subprocess.run(command, env=environ, check=True, capture_output=True)
    program = shutil.which("chromium")
    assert program is not None, "Chromium is missing: sudo apt-get install -y chromium"
    expect.set_options(timeout=_PATIENCE_MS)
    log = folder / "api-server.log"
    with (
        log.open("w") as said,
        subprocess.Popen(
            [*airflow, "api-server", "--port", str(port), "--host", "127.0.0.1"], env=environ, stdout=said, stderr=said
        ) as server,
        sync_playwright() as playwright,
        closing(playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])) as chromium,
    ):
        try:
            wait_for(f"{url}/api/v2/monitor/health", log)
            yield Site(url, chromium)
        finally:
            server.terminate()


def wait_for(url: str, log: Path) -> None:
    """Wait until a server responds; fails with its log."""
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        try:
            if httpx.get(url).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    raise AssertionError(log.read_text()[-3_000:])


def test_an_admin_uses_the_page_in_airflows_frame(site: Site) -> None:
    """Its links, its forms and the address bar have the base path."""
    with site.window("Admin", "/plugin/eventbridge") as page:
        frame = page.frame_locator("iframe[title='EventBridge']")
        expect(frame.get_by_role("heading", name="Overview")).to_be_visible()
        frame.get_by_role("link", name="Rules").click()
        frame.get_by_role("link", name="all", exact=True).click()
        frame.get_by_role("button", name="Pause", exact=True).click()
        expect(frame.get_by_text("by Admin")).to_be_visible()
        frame.get_by_role("button", name="Resume", exact=True).click()
        expect(frame.get_by_role("button", name="Pause", exact=True)).to_be_visible()
        page.wait_for_url("**/af/plugin/eventbridge/af/eventbridge/page/rules/all*")


def test_a_user_may_act_and_a_viewer_may_only_look_at_the_pages_own_address(site: Site) -> None:
    """FAB shows neither of them the menu items of plug-ins."""
    with site.window("User", "/eventbridge/page/rules/all") as page:
        page.get_by_role("button", name="Pause", exact=True).click()
        expect(page.get_by_text("by User")).to_be_visible()
    with site.window("Viewer", "/eventbridge/page/rules/all") as page:
        expect(page.get_by_text("by User")).to_be_visible()
        expect(page.get_by_role("button")).to_have_count(0)
        cookies = {each["name"]: each["value"] for each in page.context.cookies()}
        page.goto(f"{site.url}/eventbridge/page/rules/all/test")
        form = {"key": page.locator("input[name=key]").first.input_value(), "action": "resume rule"}
    for headers in ({"sec-fetch-site": "same-origin"}, {"sec-fetch-site": "cross-site"}, {}):
        response = httpx.post(
            f"{site.url}/eventbridge/page/rules/all/operate", data=form, headers=headers, cookies=cookies
        )
        assert response.status_code == 403
    with site.window("User", "/eventbridge/page/rules/all") as page:
        expect(page.get_by_text("by User")).to_be_visible()


def test_payloads_need_the_permission_to_read_task_logs(site: Site) -> None:
    """A role that may see runs but not logs sees the page but no event; a viewer gets the result."""
    for role, said in (("Outsider", "the permission to read task logs"), ("Viewer", "o1")):
        with site.window(role, "/eventbridge/page/rules") as page:
            expect(page.get_by_role("heading", name="Rules")).to_be_visible()
            page.goto(f"{site.url}/eventbridge/page/rules/all/test?event=o1")
            expect(page.get_by_text(said).first).to_be_visible()


def test_without_a_login_the_page_shows_nothing_and_links_to_fabs_login(site: Site) -> None:
    """FAB's login form leads back to the page."""
    with closing(site.chromium.new_context()) as context:
        page = context.new_page()
        page.goto(f"{site.url}/eventbridge/page/rules/all")
        expect(page.get_by_text("never-written")).to_have_count(0)
        page.get_by_role("link", name="Log in").click()
        page.locator("input#username").fill("Viewer")
        page.locator("input#password").fill("Viewer")
        page.locator("input[type=submit]").click()
        expect(page.get_by_role("heading", name="all", exact=True)).to_be_visible(timeout=_PATIENCE_MS)
