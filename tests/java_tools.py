"""What tests and benchmarks need of Java: its programs, and jars that Maven fetches from where its settings say."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent


class ToolMissing(Exception):
    """A program or a jar is not there; the message is one line with the remedy."""


def java_program(name: str) -> str:
    """Return how a program of Java's is called: that of JAVA_HOME if it is set."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / name) if home else name


def require(program: str, name: str, package: str) -> None:
    """Raise ToolMissing, with the package to install, unless the program exists."""
    if shutil.which(program) is None:
        raise ToolMissing(f"{name} is missing: sudo apt-get install -y {package}")


def fetch(what: str, pom: Path, folder: Path) -> None:
    """Copy the jars that a `pom.xml` names into a folder; raises ToolMissing."""
    require("mvn", "Maven", "maven")
    command = ["mvn", "-q", "-B", "-Dstyle.color=never", "-f", str(pom)]
    command += ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    folder.parent.mkdir(parents=True, exist_ok=True)
    # One lock for all of them, as two Mavens at once damage each other's files; no file of its own in the checkout.
    lock = os.open(_HERE, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fetched = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    finally:
        os.close(lock)
    if fetched.returncode:
        reported = next((line for line in fetched.stdout.splitlines() if "ERROR" in line), fetched.stdout.strip())
        raise ToolMissing(
            f"Maven cannot fetch {what}: {reported[:300]} Connect to the network, or name your mirror of Maven "
            "Central in ~/.m2/settings.xml, and run it again."
        )
