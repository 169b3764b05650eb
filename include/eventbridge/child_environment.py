"""The environment of child processes that need no secret: they evaluate users' words, or respond to one question."""

from __future__ import annotations

import os
from typing import Final

#: Language, time zone and libraries: an allow-list, because any other variable may hold a secret.
_NAMES: Final = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "TZ")


def child_environment() -> dict[str, str]:
    """Return the variables of this process that a child without secrets gets."""
    return {name: os.environ[name] for name in _NAMES if name in os.environ}
