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
from eventbridge.matching.scan.memory import PADDING, address_of
from eventbridge.matching.scan.strings import has_escape
text = np.frombuffer(b"\\\\n" + bytes([34] * PADDING), np.uint8)
print(has_escape(address_of(text), 0, 2), *has_escape.stats.cache_hits.values())
"""


def asked(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Ask the copy of the package in a folder, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(folder), **environment}
    return subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=False)


def response(folder: Path) -> str:
    """Return what the copy of the package in a folder says of a backslash, and whether it was cached."""
    done = asked(folder, NUMBA_CACHE_DIR=str(folder / "cache"))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def copied(folder: Path) -> Path:
    """Return a copy of the package that has nothing compiled."""
    copy = folder / "eventbridge"
    shutil.copytree(Path(eventbridge.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def test_a_change_in_another_file_is_seen(tmp_path: Path) -> None:
    """What marks.py says of backslashes counts at once in the function of strings.py that asks it."""
    marks = copied(tmp_path) / "matching" / "scan" / "marks.py"

    assert response(tmp_path) == "True"
    assert response(tmp_path) == "True 1"

    marks.write_text(
        marks.read_text().replace(
            """builder.or_(_is(builder, block, '"'), _is(builder, block, "\\\\"))""", """_is(builder, block, '"')"""
        )
    )

    assert response(tmp_path) == "False"


def test_code_compiled_by_another_user_is_used(tmp_path: Path) -> None:
    """Code that lies beside the sources counts for a process whose own folder is elsewhere, and is empty."""
    copied(tmp_path)
    by_owner = asked(tmp_path)
    assert by_owner.stdout.strip() == "True", by_owner.stderr

    assert response(tmp_path) == "True 1"


def test_nowhere_to_keep_it(tmp_path: Path) -> None:
    """Where compiled code cannot be kept at all, the error says what to set."""
    copied(tmp_path)

    done = asked(tmp_path, NUMBA_CACHE_DIR="", NUMBA_CACHE_LOCATOR_CLASSES="UserProvidedCacheLocator")

    assert "InfrastructureError: Compiled code can be kept neither" in done.stderr
    assert "set NUMBA_CACHE_DIR" in done.stderr
