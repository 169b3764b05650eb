"""The product's settings as Airflow's processes use them: the ledger must be one that all of their hosts share."""

from __future__ import annotations

import os
import re

from eventbridge.config.settings import Settings
from eventbridge.errors import SettingsError

#: Executors that run every task on the scheduler's host.
_ONE_HOST = ("LocalExecutor", "SequentialExecutor")


def airflow_settings() -> Settings:
    """Return this process's settings; raises SettingsError, also for a ledger that Airflow's executors cannot share."""
    from airflow.configuration import conf

    settings = Settings.from_mapping(os.environ)
    refuse_executors(conf.get("core", "executor"), settings.ledger_url)
    return settings


def refuse_executors(configured: str, ledger_url: str) -> None:
    """Raise SettingsError if Airflow's executors may run tasks on hosts that the ledger cannot be used from.

    `configured` is Airflow's `[core] executor`: names or import paths, several of them, with aliases and teams.
    """
    named = [re.split(r"[=:.]", each)[-1].strip() for each in re.split("[,;]", configured)]
    spanning = [each for each in named if each not in _ONE_HOST]
    if not spanning:
        return
    from eventbridge.ledger.engines.registry import engine_of  # imports SQLAlchemy, which parsing does without

    engine = engine_of(ledger_url)
    if not engine.spans_hosts:
        raise SettingsError(
            f"Airflow runs tasks by {', '.join(spanning)}, which may use several hosts, and the ledger "
            f"{engine.url.render_as_string(hide_password=True)} is a file of one: hosts would each have a state of "
            "their own. Set [core] executor (AIRFLOW__CORE__EXECUTOR) to LocalExecutor."
        )
