"""Runs a command whose standard error, and perhaps standard output, is a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

#: How long to wait for something that must appear.
PATIENCE_SECONDS = 60.0


@dataclass
class OnTerminal:
    """A running command, and the side of the terminal on which a person looks at it."""

    process: subprocess.Popen[bytes]
    looking_at: int
    seen: str = ""

    def read(self, seconds: float = 0.1) -> None:
        """Add what the command writes on the terminal within so many seconds to `seen`."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and select.select([self.looking_at], [], [], left)[0]:
            try:
                text = os.read(self.looking_at, 65_536)
            except OSError:  # the command has ended
                return
            if not text:
                return
            self.seen += text.decode().replace("\r\n", "\n")

    def read_until(self, text: str) -> None:
        """Wait until the terminal has shown a text."""
        until = time.monotonic() + PATIENCE_SECONDS
        while text not in self.seen and time.monotonic() < until and self.process.poll() is None:
            self.read()
        assert text in self.seen, self.seen

    def end(self) -> tuple[int, str]:
        """Close standard input, and return the exit code and what is in the pipe of standard output, if it is one."""
        out, _ = self.process.communicate(timeout=PATIENCE_SECONDS)
        self.read()
        return self.process.returncode, (out or b"").decode()


@contextmanager
def on_terminal(
    shop: Any, *arguments: str, columns: int = 120, whole: bool = False, **environ: str
) -> Iterator[OnTerminal]:
    """Run a command on a shop with standard error, if `whole` standard output too, on a terminal; stdin is a pipe."""
    looking_at, of_command = pty.openpty()
    termios.tcsetwinsize(of_command, (24, columns))
    names = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    with subprocess.Popen(
        [sys.executable, "-m", "eventbridge.cli", *arguments],
        stdin=subprocess.PIPE,
        stdout=of_command if whole else subprocess.PIPE,
        stderr=of_command,
        env={**names, **shop.environ, "TERM": "xterm", **environ},
        cwd=shop.folder,
    ) as process:
        os.close(of_command)
        try:
            yield OnTerminal(process, looking_at)
        finally:
            process.kill()
            os.close(looking_at)
