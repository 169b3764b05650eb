"""Builds and runs the receiver of the push benchmarks, which must be cheaper than its client (see the C file)."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_SOURCE = Path(__file__).with_name("compiled_receiver.c")


class NoCompiler(Exception):
    """There is no C compiler; the message says how to get one."""


@dataclass
class CompiledReceiver:
    """A receiver that runs; `received` is known when it has ended."""

    port: int
    received: int = 0

    def url(self, path: str) -> str:
        """Return the URL of a path such as `/ok/crm`."""
        return f"http://127.0.0.1:{self.port}{path}"


@contextmanager
def compiled_receiver(core: int | None = None) -> Iterator[CompiledReceiver]:
    """Build the receiver and run it for the block, on one core of its own if `core` says so; raises NoCompiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise NoCompiler("The benchmark's receiver is written in C: sudo apt-get install -y gcc libc6-dev")
    with tempfile.TemporaryDirectory(prefix="eventbridge-bench-") as folder:
        program = Path(folder) / "receiver"
        subprocess.run([compiler, "-O2", "-o", program, _SOURCE], check=True)
        process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        if core is not None:
            os.sched_setaffinity(process.pid, {core})
        running = CompiledReceiver(int(process.stdout.readline()))
        try:
            yield running
        finally:
            running.received = int(process.communicate()[0] or 0)
