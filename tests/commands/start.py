"""Commands of the product without its imports, which take longer than most commands do."""

from __future__ import annotations

import atexit
import functools
import os
import secrets
import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).parent


def command(*arguments: str, module: str = "eventbridge.cli") -> list[str]:
    """Return a call that does what `python -m` does with a module and arguments, in a fork of a warm process.

    What a process imports by itself is proved elsewhere: `tests/cli`, `tests/orchestration/test_installed_wheel.py`.
    """
    return [sys.executable, "-IS", str(_HERE / "client.py"), _address(), module, *arguments]


@functools.cache
def _address() -> str:
    """Start the process that is forked, which ends with this one, and return where it listens."""
    address = f"eventbridge-tests-{secrets.token_hex(16)}"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("EVENTBRIDGE_")}
    path = os.pathsep.join([str(_HERE.parents[1]), str(_HERE.parent), *filter(None, [environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        [sys.executable, str(_HERE / "warm.py"), address],
        env=environ | {"PYTHONPATH": path, "LC_ALL": "C.UTF-8"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    atexit.register(process.communicate)
    return address
