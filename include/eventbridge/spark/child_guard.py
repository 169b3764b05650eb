"""Processes that do not outlive the process that started them, not even one that was killed: the tether is a pipe."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

_PATIENCE_SECONDS = 10.0
_LOOK_SECONDS = 1.0


def start_tethered(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own whose process group ends when this process does, however it ends.

    The process returned is the command itself and leads its group; it reads nothing. Its `stdin` is the tether:
    closed, it ends the group politely, and after 10 seconds for good. `options` are those of subprocess.Popen.
    A command that cannot be run ends with a traceback and exit code 1, and raises nothing here.
    """
    return subprocess.Popen(
        [sys.executable, "-P", "-m", __name__, *command],  # -P: the folder we are in has no say in what is imported
        stdin=subprocess.PIPE,  # nobody writes: our end closes when we die
        start_new_session=True,
        **options,
    )


def start_untethered(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own that goes on when this process ends; `options` as above."""
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **options)


def main() -> None:
    """Become the command that the arguments name, and leave a guard in its group that ends it with its starter."""
    command = os.getpid()
    if os.fork() == 0:
        _guard(command)
        os._exit(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and the executed command would inherit that
        signal.signal(number, signal.SIG_DFL)
    os.execvp(sys.argv[1], sys.argv[1:])


def _guard(command: int) -> None:
    """Return once the command, its parent, has ended; end its group if the tether is gone before."""
    # our own, and that of a process that ends the group politely and is killed before the command has obeyed
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):  # a reader of the command's output must see it end with the command
        os.dup2(nothing, descriptor)
    while not select.select([0], [], [], _LOOK_SECONDS)[0]:
        if os.getppid() != command:
            return
    os.killpg(0, signal.SIGTERM)
    until = time.monotonic() + _PATIENCE_SECONDS
    while os.getppid() == command and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
