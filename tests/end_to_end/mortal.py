"""A target's own server, which a test kills and restarts. It writes its requests to the environment's record."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

#: Its port in the rule files; the copy of the environment has the real port.
MORTAL_PORT = 8766

_END_SECONDS = 30.0


class MortalServer:
    """A receiver in its own process on a fixed port. It ends with the test process at the latest."""

    def __init__(self, port: int, record: Path) -> None:
        self._port = port
        self._record = record
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it and return once it listens."""
        command = [sys.executable, "-m", "demo.receiver", "--port", str(self._port)]
        command += ["--log", str(self._record), "--with-parent"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == str(self._port)

    def kill(self) -> None:
        """Kill it by SIGKILL: nothing listens on its port afterwards."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(_END_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process = None

    def close(self) -> None:
        """Stop it if it runs."""
        if self._process is not None:
            self.kill()
