"""The environment of child processes without secrets: they evaluate users' expressions, or answer one query."""

from __future__ import annotations

import os
from typing import Final

#: Language, time zone and libraries: an allow-list, because any other variable may hold a secret.
_NAMES: Final = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "TZ")


def child_environment() -> dict[str, str]:
    """Return the variables of this process for a child without secrets."""
    return {name: os.environ[name] for name in _NAMES if name in os.environ}
