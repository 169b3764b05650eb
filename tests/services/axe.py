"""Downloads axe-core, which finds accessibility errors of a page, from npm, for the tests of the page."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from java_tools import ToolMissing, require
from services.cache import CACHE

_PACKAGE: Final = "axe-core@4.14.1"
_SHA512: Final = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="


def fetch_axe() -> Path:
    """Return the script, downloaded by npm if it is missing; raises ToolMissing."""
    script = CACHE / f"{_PACKAGE.replace('@', '-')}.js"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "axe.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        if not script.exists():
            script.write_bytes(_fetched())
    return script


def _fetched() -> bytes:
    require("npm", "npm", "npm")
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", _PACKAGE]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ToolMissing(f"{_PACKAGE} cannot be fetched: {done.stderr.strip()[-300:]} Connect to the network.")
        package = Path(folder, done.stdout.split()[-1])
        found = base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
        if found != _SHA512:
            raise ToolMissing(f"{_PACKAGE} is not what it was: its SHA-512 is {found}.")
        with tarfile.open(package) as archive:
            member = archive.extractfile("package/axe.min.js")
            assert member is not None, "the package has its script"
            return member.read()
