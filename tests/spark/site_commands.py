"""Runs commands of a user in a folder with rule files, one after the other."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from commands.start import command

_SETTINGS = {
    "EVENTBRIDGE_RULES_FOLDER": "rules",
    "EVENTBRIDGE_FILE_TARGET_FOLDERS": ".",
    "EVENTBRIDGE_DISK_MIN_FREE_SIZE": "0",
}


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command of a user with these settings, beside those of every test here."""
    return {**os.environ, **_SETTINGS, **settings}


def commands_in(folder: Path, settings: Mapping[str, str]) -> Callable[..., str]:
    """Return what runs a command in `folder` and returns its output, or its errors if it has none.

    The command must end with `code`, and say nothing beside its output where `quiet`.
    """

    def run(*arguments: str, code: int = 0, quiet: bool = False) -> str:
        done = subprocess.run(
            command(*arguments),
            cwd=folder,
            env=environment(settings),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert not (quiet and done.stderr), done.stderr
        return done.stdout or done.stderr

    return run
