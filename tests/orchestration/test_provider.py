"""The provider: its connection forms match what targets and stores read, and its section has all settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.api_fastapi.core_api.datamodels.plugins import ExternalViewResponse
from airflow.sdk.module_loading import import_string

from eventbridge.airflow.hooks import StoreHook, TargetHook
from eventbridge.airflow.plugin import EventBridgePlugin
from eventbridge.airflow.provider import get_provider_info
from eventbridge.airflow.publish import EventBridgeHook
from eventbridge.airflow.settings import configured_settings
from eventbridge.clients.s3 import access
from eventbridge.config.setting_types import PREFIX
from eventbridge.config.settings import Settings
from eventbridge.errors import SettingsError
from eventbridge.targets.http import credentials

OPTIONS = get_provider_info()["config"]["eventbridge"]["options"]
FORMS = {each["connection-type"]: each for each in get_provider_info()["connection-types"]}


def test_every_setting_is_an_option_and_its_default_means_the_same() -> None:
    """The defaults in a configuration file that Airflow generates change nothing."""
    written = {f"{PREFIX}{name.upper()}": option["default"] for name, option in OPTIONS.items() if option["default"]}

    assert set(OPTIONS) == set(Settings.model_fields)
    assert Settings.from_mapping(written) == Settings()


def test_the_forms_have_every_field_that_is_read() -> None:
    """The fields of the forms are exactly the extras of targets and stores."""
    assert set(FORMS["eventbridge_target"]["conn-fields"]) == credentials.EXTRAS
    assert set(FORMS["eventbridge_store"]["conn-fields"]) == access._EXTRAS


def test_every_form_names_a_hook_of_its_type() -> None:
    """Airflow imports the hook by its name to test a connection."""
    for kind, form in FORMS.items():
        hook = import_string(form["hook-class-name"])

        assert (hook.conn_type, hook.hook_name) == (kind, form["hook-name"])


def test_the_view_of_the_plugin_is_one_that_airflow_shows() -> None:
    """With an invalid value Airflow would skip the whole plug-in and only log it."""
    dags, page, run = map(ExternalViewResponse.model_validate, EventBridgePlugin.external_views)

    assert (dags.category, page.nav_top_level, run.destination) == ("browse", True, "dag_run")


@pytest.mark.parametrize(
    ("hook", "extra", "expected"),
    [
        (
            TargetHook,
            {"signing_secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "token": None, "any_host": True},
            "A target can use this connection",
        ),
        (TargetHook, {"signing_secret": "secret", "any_host": True}, "'it'"),
        (
            TargetHook,
            {"token": "hush", "any_host": None},
            "of type 'eventbridge_target' names no host.",
        ),
        (StoreHook, {"region_name": "eu-central-1", "encryption": None}, "A store can use this connection"),
        (StoreHook, {"encryption": "none"}, "its encryption is neither"),
        (EventBridgeHook, {}, "Events go to orders/events"),
        (EventBridgeHook, {"topic": "none"}, "none"),
    ],
)
def test_a_connection_is_tested(
    home: Path, hook: Any, extra: dict[str, Any], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The button of the form reports that the connection can be used, or what to fix; empty fields are ignored."""
    text = json.dumps(
        {"conn_type": hook.conn_type, "schema": "orders" if hook is EventBridgeHook else "", "extra": extra}
    )
    monkeypatch.setenv("AIRFLOW_CONN_IT", text)
    good, message = hook("it").test_connection()

    assert expected in message
    assert good == message.startswith(("A target", "A store", "Events go"))


def test_airflows_section_gives_what_no_variable_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment variable overrides the section; a setting in neither has its default."""
    monkeypatch.setenv("AIRFLOW__EVENTBRIDGE__PUSH_TIMEOUT", "7s")
    monkeypatch.setenv("AIRFLOW__EVENTBRIDGE__BATCH_MAX_EVENTS", "7")
    monkeypatch.setenv("EVENTBRIDGE_BATCH_MAX_EVENTS", "8")
    found = configured_settings()

    assert (found.push_timeout, found.batch_max_events, found.batch_max_chunks) == (7.0, 8, 64)


def test_airflow_runs_the_command_that_gives_the_ledgers_url(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ledger_url_cmd` of the section is Airflow's own feature; any environment variable for the URL overrides it."""
    monkeypatch.setenv("AIRFLOW__EVENTBRIDGE__LEDGER_URL_CMD", "echo sqlite:////tmp/of-section.sqlite")

    assert configured_settings().ledger_url == "sqlite:////tmp/of-section.sqlite"

    monkeypatch.setenv("EVENTBRIDGE_LEDGER_URL_CMD", "echo sqlite:////tmp/of-variable.sqlite")

    assert configured_settings().ledger_url == "sqlite:////tmp/of-variable.sqlite"


def test_an_error_in_the_section_names_the_section(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the nearest setting, and Airflow's section."""
    monkeypatch.setenv("AIRFLOW__EVENTBRIDGE__HOMME", "/srv")
    with pytest.raises(SettingsError) as raised:
        configured_settings()

    assert "Did you mean EVENTBRIDGE_HOME?" in str(raised.value)
    assert "section [eventbridge], gives: EVENTBRIDGE_HOMME" in str(raised.value)
