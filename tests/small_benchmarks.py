"""A benchmark as a process of its own, at a size at which it takes seconds."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_ROOT = Path(__file__).parents[1]


def prints_its_table(name: str, arguments: Sequence[str], wanted: Sequence[str], folder: Path) -> None:
    """Run a benchmark in an empty folder, and assert that it prints each text and leaves nothing behind.

    No goal is judged: the exit code says only whether the goals are reached.
    """
    path = os.pathsep.join([str(_ROOT), str(_ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]

    done = subprocess.run(command, cwd=folder, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)

    assert done.returncode in (0, 1), done.stderr
    assert [text for text in wanted if text not in done.stdout] == [], done.stdout + done.stderr
    assert list(folder.iterdir()) == [], "a benchmark leaves nothing behind"
