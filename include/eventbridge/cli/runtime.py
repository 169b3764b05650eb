"""Opens what a command works with from the environment: settings, connections, ledger, store.

Commands import what they need when they run, not when they are defined: `eventbridge --help` and `rules check` need
neither a database nor Parquet, and to import those takes longer than to check a hundred rules.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from eventbridge.cli.noted import noted
from eventbridge.cli.output import note

if TYPE_CHECKING:
    from eventbridge.config.settings import Settings
    from eventbridge.stages.runtime.runtime import Runtime

_SQLITE = "sqlite:///"


def settings() -> Settings:
    """Return the settings that EVENTBRIDGE_* variables give; raises SettingsError."""
    from eventbridge.config.settings import Settings

    return Settings.from_mapping(os.environ)


@contextmanager
def runtime(*, looking: bool = False, acting: bool = False) -> Iterator[Runtime]:
    """Open the runtime for one command and close it after.

    `looking`: the command shows what is there, so a ledger that had to be made is worth a note: it is perhaps
    not the one that was meant. `acting`: the command changes how things stand, and who ran it is noted.
    """
    from eventbridge.config.connection import connections_from_environment
    from eventbridge.stages.runtime.runtime import Runtime
    from eventbridge.telemetry.chosen import chosen_telemetry

    chosen = settings()
    path = Path(chosen.ledger_url.removeprefix(_SQLITE)) if chosen.ledger_url.startswith(_SQLITE) else None
    missing = looking and path is not None and not path.exists()
    work = Runtime.open(chosen, connections_from_environment(os.environ), telemetry=chosen_telemetry(os.environ))
    try:
        if missing:
            note(f"{path} was not there: this is a new, empty ledger. EVENTBRIDGE_HOME says where yours is")
        if acting:
            with noted(work):
                yield work
        else:
            yield work
    finally:
        work.close()
