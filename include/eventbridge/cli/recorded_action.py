"""Records in the ledger each command that changes something, as the API records its calls."""

from __future__ import annotations

import getpass
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from eventbridge.errors import EventBridgeError

if TYPE_CHECKING:
    from eventbridge.runtime.runtime import Runtime


@contextmanager
def recorded_action(runtime: Runtime) -> Iterator[None]:
    """Record the command before the body runs, and its exit code after; raises LedgerError before the body runs.

    The record holds the arguments, which name files and rules; it never holds the content of a file.
    """
    from eventbridge.control.actions import note_action

    words = sys.argv[1:]
    call = " ".join(["eventbridge", *(word for word in words[:2] if not word.startswith("-"))])
    number = note_action(runtime, f"command, {user()}@{socket.gethostname()}", call, {"arguments": words})
    code = 1
    try:
        yield
        code = 0
    except (EventBridgeError, typer.Exit) as error:
        code = error.exit_code
        raise
    finally:
        runtime.ledger.record_action_status(number, code)


def user() -> str:
    """Return the name of the user who runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "a user without a name"
