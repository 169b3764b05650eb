"""Downloads Airflow's auth manager FAB into a separate folder, for the test of the page with it."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from java_tools import ToolMissing
from services.cache import CACHE

FETCHED: Final = CACHE / "fab"
_REQUIREMENTS: Final = Path(__file__).with_name("fab.txt")


def fetch_fab() -> Path:
    """Return a folder for `PYTHONPATH`, filled by pip if it is missing; raises ToolMissing."""
    done = FETCHED / ".fetched"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "fab.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        if not done.exists() or done.read_bytes() != _REQUIREMENTS.read_bytes():
            shutil.rmtree(FETCHED, ignore_errors=True)
            _fetch()
            done.write_bytes(_REQUIREMENTS.read_bytes())
    return FETCHED


def _fetch() -> None:
    with tempfile.TemporaryDirectory() as installer:
        pip = str(Path(installer, "bin", "pip"))
        options = ["install", "-q", "--no-deps", "--require-hashes", "--target", str(FETCHED), "-r", str(_REQUIREMENTS)]
        for command in ([sys.executable, "-m", "venv", installer], [pip, *options]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                reported = (done.stdout + done.stderr).strip()[-300:]
                raise ToolMissing(f"FAB cannot be fetched: {reported} Connect to the network, and run it again.")
