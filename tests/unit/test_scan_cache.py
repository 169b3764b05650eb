"""Compiled code on disk is not used once any source that went into it has changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import eventbridge

ASK = """
import numpy as np
from eventbridge.scan.memory import PADDING, address_of
from eventbridge.scan.strings import is_utf8
text = np.frombuffer(b"\\xff" + bytes(PADDING), np.uint8)
print(is_utf8(address_of(text), 0, 1), *is_utf8.stats.cache_hits.values())
"""


def answer(folder: Path) -> str:
    """Return what the copy of the package in a folder says of a byte that is no UTF-8, and whether it was cached."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-c", ASK]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_a_change_in_another_file_is_seen(tmp_path: Path) -> None:
    """What memory.py says of bytes beyond ASCII counts at once in the function of strings.py that asks it."""
    copy = tmp_path / "eventbridge"
    shutil.copytree(Path(eventbridge.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    memory = copy / "scan" / "memory.py"

    assert answer(tmp_path) == "False"
    assert answer(tmp_path) == "False 1"

    memory.write_text(memory.read_text().replace('">=", block, _splat(kind, 0x80)', '"<", block, _splat(kind, 0)'))

    assert answer(tmp_path) == "True"
