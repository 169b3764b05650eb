"""Opens what a command works with from the environment: settings, connections, ledger, store.

Commands import what they need when they run, not when they are defined: `eventbridge --help` and `rules check` need
neither a database nor Parquet, and to import those takes longer than to check a hundred rules.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from eventbridge.cli.noted import noted
from eventbridge.cli.output import note

if TYPE_CHECKING:
    from eventbridge.config.settings import Settings
    from eventbridge.stages.runtime.runtime import Runtime

_SQLITE = "sqlite:///"
_FILE = "file://"


def settings() -> Settings:
    """Return the settings that EVENTBRIDGE_* variables give; raises SettingsError."""
    from eventbridge.config.settings import Settings

    return Settings.from_mapping(os.environ)


@contextmanager
def open_runtime(*, looking: bool = False, acting: bool = False, writing: bool = False) -> Iterator[Runtime]:
    """Open the runtime for one command and close it after.

    `looking`: the command shows what is there. Where there is no ledger it makes none, nor a home: it is given an empty
    one that goes with the command, and a note names the place. `acting`: the command changes how things stand, and who
    ran it is noted. `writing`: it leaves something without being an act. Both make what is missing; with `looking` too,
    a note says so, as it is perhaps not the place that was meant.
    """
    from eventbridge.config.connection import connections_from_environment
    from eventbridge.stages.runtime.runtime import Runtime
    from eventbridge.telemetry.selection import telemetry_from_environment

    chosen = settings()
    path = Path(chosen.ledger_url.removeprefix(_SQLITE)) if chosen.ledger_url.startswith(_SQLITE) else None
    missing = looking and path is not None and not path.exists()
    with ExitStack() as stack:
        if missing and not acting and not writing:
            note(f"there is no ledger at {path}, and none is made. EVENTBRIDGE_HOME says where yours is")
            chosen = _without_traces(chosen, Path(stack.enter_context(TemporaryDirectory(prefix="eventbridge-"))))
            missing = False
        runtime = Runtime.open(
            chosen, connections_from_environment(os.environ), telemetry=telemetry_from_environment(os.environ)
        )
        stack.callback(runtime.close)
        if missing:
            note(f"{path} was not there: this is a new, empty ledger. EVENTBRIDGE_HOME says where yours is")
        if acting:
            stack.enter_context(noted(runtime))
        yield runtime


def _without_traces(chosen: Settings, folder: Path) -> Settings:
    """Return settings by which nothing is made but in a folder: what is there already is read where it lies."""
    places: dict[str, object] = {"ledger_url": f"{_SQLITE}{folder}/ledger.sqlite"}
    if not chosen.home.exists():
        places["home"] = folder
    if not chosen.bus_folder.exists():
        places["bus_folder"] = folder / "bus"
    if chosen.store_uri.startswith(_FILE) and not Path(chosen.store_uri.removeprefix(_FILE)).exists():
        places["store_uri"] = f"{_FILE}{folder}/store"
    return chosen.model_copy(update=places)
