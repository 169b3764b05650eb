"""Notes in the ledger which command somebody runs that changes something, as the API notes its calls."""

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
    from eventbridge.stages.runtime.runtime import Runtime


@contextmanager
def noted(runtime: Runtime) -> Iterator[None]:
    """Note the command before what is within is done, and its exit code after; raises LedgerError: then do not do it.

    Its words are noted, as they name files and things; what files hold is not.
    """
    from eventbridge.stages.operate.actions import note_action

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
    """Return who runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "a user without a name"
