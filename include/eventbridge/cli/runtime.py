"""Opens the runtime of a command from the environment: settings, connections, ledger, store.

Commands import modules when they run, not when they are defined: `eventbridge --help` and `rules check` need neither a
database nor Parquet, which take longer to import than a hundred rules to check.
"""

from __future__ import annotations

import getpass
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import typer

from eventbridge.cli.output import note
from eventbridge.errors import EventBridgeError, UserError

if TYPE_CHECKING:
    from eventbridge.config.settings import Settings
    from eventbridge.runtime.runtime import Runtime

_SQLITE = "sqlite:///"
_FILE = "file://"


def settings() -> Settings:
    """Return the settings that EVENTBRIDGE_* variables give. Raises SettingsError."""
    from eventbridge.config.settings import Settings

    return Settings.from_mapping(os.environ)


@contextmanager
def open_runtime(
    *, expects_ledger: bool = False, needs_ledger: bool = False, is_action: bool = False, writes: bool = False
) -> Iterator[Runtime]:
    """Open the runtime for one command and close it afterwards.

    `expects_ledger` means that the command works on an existing ledger. If the file is missing, the command gets an
    empty ledger, which is deleted when it ends, and a note names the missing file; with `needs_ledger`, UserError is
    raised instead, for a command whose user does not see notes. `is_action` means that the command changes something,
    so the ledger records who ran it. `writes` means that the command stores data without being an action. An action or
    a write creates a missing ledger; with `expects_ledger`, a note says so, because the path may be the wrong one.
    """
    from eventbridge.config.connection import connections_from_environment
    from eventbridge.runtime.open import open_runtime as open_with_settings
    from eventbridge.telemetry.selection import telemetry_from_environment

    chosen = settings()
    path = Path(chosen.ledger_url.removeprefix(_SQLITE)) if chosen.ledger_url.startswith(_SQLITE) else None
    missing = (expects_ledger or needs_ledger) and path is not None and not path.exists()
    if missing and needs_ledger:
        raise UserError(
            f"there is no ledger at {path}. Set EVENTBRIDGE_HOME to the folder of the installation. If it is new, "
            "publish an event first: `eventbridge events publish`"
        )
    with ExitStack() as stack:
        if missing and not is_action and not writes:
            note(
                f"there is no ledger at {path}; the command works with an empty one. "
                "If you expected a ledger, set EVENTBRIDGE_HOME to its folder"
            )
            chosen = _settings_below(chosen, Path(stack.enter_context(TemporaryDirectory(prefix="eventbridge-"))))
            missing = False
        runtime = open_with_settings(
            chosen, connections_from_environment(os.environ), telemetry=telemetry_from_environment(os.environ)
        )
        stack.callback(runtime.close)
        if missing:
            note(
                f"created an empty ledger at {path}. "
                "If you expected an existing one, set EVENTBRIDGE_HOME to its folder"
            )
        if is_action:
            stack.enter_context(_recorded_action(runtime))
        yield runtime


def _settings_below(chosen: Settings, folder: Path) -> Settings:
    """Return settings that create files in `folder` only; existing ones are read where they are."""
    changed: dict[str, object] = {"ledger_url": f"{_SQLITE}{folder}/ledger.sqlite"}
    if not chosen.home.exists():
        changed["home"] = folder
    if not chosen.bus_folder.exists():
        changed["bus_folder"] = folder / "bus"
    if chosen.store_uri.startswith(_FILE) and not Path(chosen.store_uri.removeprefix(_FILE)).exists():
        changed["store_uri"] = f"{_FILE}{folder}/store"
    return chosen.model_copy(update=changed)


@contextmanager
def _recorded_action(runtime: Runtime) -> Iterator[None]:
    """Record the command before the body runs, and its exit code afterwards.

    Raises LedgerError, before the body runs, if the command cannot be recorded.
    The record holds the arguments, which name files and rules; it never holds the content of a file.
    """
    from eventbridge.control.actions import note_action

    words = sys.argv[1:]
    call = " ".join(["eventbridge", *(word for word in words[:2] if not word.startswith("-"))])
    number = note_action(runtime, f"command, {user()}@{socket.gethostname()}", call, {"arguments": words})
    code = EventBridgeError.exit_code
    try:
        yield
        code = 0
    except (EventBridgeError, typer.Exit) as error:
        code = error.exit_code
        raise
    finally:
        runtime.ledger.actions.record_status(number, code)


def user() -> str:
    """Return the name of the user who runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "a user without a name"
