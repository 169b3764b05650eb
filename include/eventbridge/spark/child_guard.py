"""Starts child processes that end with their parent, even if the parent is killed, because a pipe tethers them to
it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

#: The number of seconds that the command may take to end after SIGTERM before it is killed.
_START_TIMEOUT_SECONDS = 10.0
#: The number of seconds between two checks whether the command still runs. It notices the end of the parent
#: immediately.
_POLL_SECONDS = 1.0


def start_tethered(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a command in a new session whose process group ends when this process ends for any reason.

    The returned process is the command itself, the leader of its group. Its `stdin` is the tether: closing it sends
    SIGTERM to the group, and SIGKILL after about 10 seconds. `options` are the options of subprocess.Popen. A command
    that cannot be run ends with a traceback and exit code 1; this function does not raise.
    """
    return subprocess.Popen(
        [sys.executable, "-P", "-m", __name__, *command],  # -P keeps the current folder off the import path
        stdin=subprocess.PIPE,  # never written to; our end closes when this process dies
        start_new_session=True,
        **options,
    )


def start_untethered(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a command in a new session that outlives this process; `options` are the options of subprocess.Popen."""
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **options)


def main() -> None:
    """Execute the command in the arguments, after forking a guard into its group, which ends the group with the
    parent."""
    command = os.getpid()
    if os.fork() == 0:
        _guard(command)
        os._exit(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these signals, and the command would inherit that
        signal.signal(number, signal.SIG_DFL)
    os.execvp(sys.argv[1], sys.argv[1:])


def _guard(command: int) -> None:
    """Return once the command has ended; end its group if the tether closes first."""
    # The guard outlives a SIGTERM to its group, and kills the group even if the sender of the SIGTERM dies first.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):  # readers of the command's output must get EOF when the command ends
        os.dup2(nothing, descriptor)
    while not select.select([0], [], [], _POLL_SECONDS)[0]:
        if os.getppid() != command:
            return
    os.killpg(0, signal.SIGTERM)
    until = time.monotonic() + _START_TIMEOUT_SECONDS
    while os.getppid() == command and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
