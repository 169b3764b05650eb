"""Reads EventBridge's settings in Airflow's processes, and checks that all executors can share the ledger.

A setting comes from the environment or, if it is not set there, from the section [eventbridge] of Airflow's
configuration.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from configparser import RawConfigParser
from datetime import timedelta

from eventbridge.config.indirect import LEDGER_URL_NAMES
from eventbridge.config.setting_types import PREFIX
from eventbridge.config.settings import Settings
from eventbridge.errors import SettingsError

#: The section of Airflow's configuration that may contain every setting, in lower case.
SECTION = "eventbridge"

#: Executors that run every task on the scheduler's host.
_ONE_HOST = ("LocalExecutor", "SequentialExecutor")

_VARIABLE = f"AIRFLOW__{SECTION.upper()}__"


def airflow_settings() -> Settings:
    """Return this process's settings.

    Raises SettingsError if they are invalid, or if Airflow's executors may run tasks on hosts that cannot use the
    ledger.
    """
    from airflow.configuration import conf

    settings = configured_settings()
    refuse_executors(conf.get("core", "executor"), settings.ledger_url)
    return settings


def configured_settings() -> Settings:
    """Return this process's settings, whatever Airflow's executors are. Raises SettingsError if they are invalid."""
    from airflow.configuration import conf

    section = section_settings(conf, os.environ)
    if any(os.environ.get(name) for name in LEDGER_URL_NAMES):
        section.pop(LEDGER_URL_NAMES[0], None)
    variables = {name: value for name, value in os.environ.items() if name.startswith(PREFIX) and value}
    try:
        return Settings.from_mapping(section | variables)
    except SettingsError as error:
        if not section:
            raise
        raise SettingsError(
            f"{error}\nAirflow's configuration, section [{SECTION}], gives: {', '.join(sorted(section))}"
        ) from None


def listener_settings() -> Settings:
    """Return the settings EVENTBRIDGE_AIRFLOW_... of this process, and the defaults of all others.

    Every process of Airflow calls this, so no command that prints the ledger's URL is run. Raises SettingsError if the
    settings are invalid.
    """
    from airflow.configuration import conf

    section = section_settings(conf, os.environ, "airflow_")
    given = {name: value for name, value in os.environ.items() if name.startswith(f"{PREFIX}AIRFLOW_") and value}
    return Settings.from_mapping(section | given)


def section_settings(conf: RawConfigParser, environ: Mapping[str, str], prefix: str = "") -> dict[str, str]:
    """Return the settings in Airflow's section [eventbridge], by the names of EventBridge's own variables.

    Only the options in `airflow.cfg` and in AIRFLOW__EVENTBRIDGE__* variables are read, because reading all options
    would make every process that parses a DAG file load all providers. Of these, only options that begin with `prefix`
    are read. Airflow resolves `..._cmd` and `..._secret`.
    """
    written = [name.removeprefix(_VARIABLE).lower() for name in environ if name.startswith(_VARIABLE)]
    if conf.has_section(SECTION):
        written += conf.options(SECTION)
    names = {re.sub("_(cmd|secret)$", "", name) for name in written}
    chosen = sorted(name for name in names if name.startswith(prefix))
    values = {name: (conf.get(SECTION, name, fallback="") or "").strip() for name in chosen}
    return {f"{PREFIX}{name.upper()}": value for name, value in values.items() if value}


def refuse_executors(configured: str, ledger_url: str) -> None:
    """Raise SettingsError if Airflow's executors may run tasks on hosts that cannot use the ledger.

    `configured` is Airflow's `[core] executor`: one or more names or import paths, perhaps with aliases and teams.
    """
    named = [re.split(r"[=:.]", each)[-1].strip() for each in re.split("[,;]", configured)]
    spanning = [each for each in named if each not in _ONE_HOST]
    if not spanning:
        return
    from eventbridge.ledger.engines.registry import engine_of  # imports SQLAlchemy, which parsing does not need
    from eventbridge.ledger.engines.shown_url import redact_url

    engine = engine_of(ledger_url)
    if not engine.spans_hosts:
        raise SettingsError(
            f"Airflow runs tasks with {', '.join(spanning)}, which may use several hosts, and the ledger "
            f"{redact_url(engine.url)} is a file on one host: each host would have its "
            "own state. Point EVENTBRIDGE_LEDGER_URL at a postgresql:// server (`eventbridge ledger copy` moves the "
            "ledger there), or set [core] executor (AIRFLOW__CORE__EXECUTOR) to LocalExecutor."
        )


def run_limit(settings: Settings) -> timedelta:
    """Return the `dagrun_timeout` of DAGs: the sum of a batch's timeouts, plus 60 s for everything else.

    With the default settings it is 200 s. It is the same for retry runs, although their batches skip the first stages.
    """
    budgets = settings.prepare_timeout + settings.batch_timeout + settings.push_timeout
    return timedelta(seconds=budgets + 60.0)
