"""Reads the ledger's URL, which may contain a password, from a command or file that another variable names."""

from __future__ import annotations

import functools
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from eventbridge.config.setting_types import PREFIX
from eventbridge.errors import UserError

LEDGER_URL = f"{PREFIX}LEDGER_URL"
BY_COMMAND = f"{LEDGER_URL}_CMD"
BY_FILE = f"{LEDGER_URL}_FILE"

#: The variables that give the ledger's URL, directly or indirectly. At most one of them may be set.
LEDGER_URL_NAMES = (LEDGER_URL, BY_COMMAND, BY_FILE)

_PASSWORD = re.compile(r"://[^/?#]*:[^/?#]*@|[?&](password|sslpassword)=", re.IGNORECASE)
#: The maximum number of seconds that the command may take. Every process that opens the ledger waits for it once.
_LIMIT_SECONDS = 30.0


def with_ledger_url(environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the settings, with the ledger's URL that a command prints or a file contains, and any errors.

    The command's output is kept for the life of the process. No message shows the URL or the output.
    """
    settings = {name: value for name, value in environ.items() if name not in (BY_COMMAND, BY_FILE)}
    named = [name for name in LEDGER_URL_NAMES if environ.get(name)]
    if len(named) > 1:
        return settings, [f"{' and '.join(named)} are set together. Keep one of them"]
    try:
        if named == [BY_COMMAND]:
            settings[LEDGER_URL] = _printed_by(environ[BY_COMMAND])
        elif named == [BY_FILE]:
            settings[LEDGER_URL] = _read_file(environ[BY_FILE])
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return settings, [f"{named[0]}: {_error_message(error)}"]
    return settings, []


def resolve_url(named: str, environ: Mapping[str, str]) -> str:
    """Return the URL that a command argument names: the argument itself, or the value of the variable with that name.

    As for the ledger, <name>_FILE or <name>_CMD may be set instead of the variable. Raises UserError if there is no
    such URL, and for an argument with a password, because every user of the machine can read a command's arguments.
    """
    if "://" in named:
        if _PASSWORD.search(named):
            raise UserError(
                "a URL with a password may not be an argument: every user of this machine can read it (`ps`). Put it "
                "into a variable, such as NEW_LEDGER_URL, and write the variable's name; or into a file that "
                "NEW_LEDGER_URL_FILE names"
            )
        return named
    ways: dict[str, Callable[[str], str]] = {named: str, f"{named}_FILE": _read_file, f"{named}_CMD": _printed_by}
    given = [name for name in ways if environ.get(name)]
    if len(given) != 1:
        set_here = f"{' and '.join(given)} are set together" if given else f"no variable {named} is set"
        raise UserError(f"{set_here}. Set one of {', '.join(ways)}, or write the URL, without a password")
    try:
        return ways[given[0]](environ[given[0]])
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise UserError(f"{given[0]}: {_error_message(error)}") from None


@functools.cache
def _printed_by(command: str) -> str:
    words = shlex.split(command)
    if not words:
        raise ValueError("it is empty. Write a command that prints the URL")
    # The command inherits the entire environment, because a client of a secret store needs its token from there.
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=_LIMIT_SECONDS)
    return _one_line(done.stdout, "the command printed")


def _read_file(file: str) -> str:
    return _one_line(Path(file).expanduser().read_bytes(), f"the file {file} contains")


def _one_line(text: bytes, origin: str) -> str:
    lines = [line.strip() for line in text.decode(errors="replace").splitlines() if line.strip()]
    if len(lines) != 1:
        raise ValueError(f"{origin} {'no URL' if not lines else 'more than one line'}. It must be exactly one URL")
    return lines[0]


def _error_message(error: Exception) -> str:
    match error:
        case subprocess.CalledProcessError():
            return f"the command ended with exit code {error.returncode}. Run it yourself to see why"
        case subprocess.TimeoutExpired():
            return f"the command did not end within {_LIMIT_SECONDS:g} s. Run it yourself to see why"
        case OSError():
            return f"{error.filename}: {error.strerror}"
        case _:
            return str(error)
