"""Opens what a command works with from the environment: settings, connections, ledger, store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from eventbridge.connection import connections_from_environment
from eventbridge.settings import Settings
from eventbridge.stages.workplace import Workplace


def settings() -> Settings:
    """Return the settings that EVENTBRIDGE_* variables give; raises SettingsError."""
    return Settings.from_mapping(os.environ)


@contextmanager
def workplace() -> Iterator[Workplace]:
    """Open the workplace for one command and close it after."""
    work = Workplace.open(settings(), connections_from_environment(os.environ))
    try:
        yield work
    finally:
        work.close()
