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
from eventbridge.scan.strings import has_escape
text = np.frombuffer(b"\\\\n" + bytes([34] * PADDING), np.uint8)
print(has_escape(address_of(text), 0, 2), *has_escape.stats.cache_hits.values())
"""


def answer(folder: Path) -> str:
    """Return what the copy of the package in a folder says of a backslash, and whether it was cached."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-c", ASK]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_a_change_in_another_file_is_seen(tmp_path: Path) -> None:
    """What marks.py says of backslashes counts at once in the function of strings.py that asks it."""
    copy = tmp_path / "eventbridge"
    shutil.copytree(Path(eventbridge.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    marks = copy / "scan" / "marks.py"

    assert answer(tmp_path) == "True"
    assert answer(tmp_path) == "True 1"

    marks.write_text(
        marks.read_text().replace(
            """builder.or_(_is(builder, block, '"'), _is(builder, block, "\\\\"))""", """_is(builder, block, '"')"""
        )
    )

    assert answer(tmp_path) == "False"
