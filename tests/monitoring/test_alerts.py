"""docs/howto/monitoring/alerts.yaml: the condition of each alert, and its section in the runbook."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml
from services.prometheus import fetch_prometheus

FOLDER = Path(__file__).parents[2] / "docs" / "howto" / "monitoring"
ALERTS: list[dict[str, Any]] = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"][0]["rules"]
NAMES = [each["alert"] for each in ALERTS]


def test_each_alert_fires_when_it_should() -> None:
    """Tested by promtool, on the series of alerts_test.yaml."""
    done = subprocess.run(
        [fetch_prometheus() / "promtool", "test", "rules", "alerts_test.yaml"],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_a_test_of_both_kinds() -> None:
    """It fires in one test and does not fire in another, except for the alert that always fires."""
    tests = yaml.safe_load((FOLDER / "alerts_test.yaml").read_text())["tests"]
    asked = [(each["alertname"], bool(each.get("exp_alerts"))) for test in tests for each in test["alert_rule_test"]]

    wanted = {(name, fires) for name in NAMES for fires in (True, False)} - {("EventBridgeWatchdog", False)}
    assert set(asked) == wanted


def test_each_alert_links_to_its_section_of_the_runbook() -> None:
    """The runbook has no other sections."""
    sections = re.findall(r"^## (EventBridge\w+)$", (FOLDER / "runbook.md").read_text(), re.MULTILINE)

    assert sections == NAMES
    for each in ALERTS:
        assert each["annotations"]["runbook"] == f"docs/howto/monitoring/runbook.md#{each['alert'].lower()}"


def test_alerts_use_existing_metrics() -> None:
    """Every metric of an alert is in docs/reference/metrics.md, which another test compares with a scrape."""
    page = (FOLDER.parents[1] / "reference" / "metrics.md").read_text()
    asked = {name for each in ALERTS for name in re.findall(r"eventbridge_\w+", each["expr"])}

    assert [name for name in sorted(asked) if f"`{name}`" not in page] == []
