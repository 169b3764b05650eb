"""Replaces the paths of an installation's folders in responses by the names of their settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from fastapi import Request

from eventbridge.config.settings import Settings
from eventbridge.runtime.runtime import Runtime

#: Routes that show the text of rules, with paths as their author wrote them.
_OF_RULES: Final = frozenset(
    {
        *("/rules", "/rules/{rule}", "/rules/{rule}/versions", "/rule-changes"),
        *("/page/rules/{name}", "/page/rules/{name}/test", "/page/request"),
    }
)


def without_host_paths(request: Request, text: str) -> str:
    """Return a text without the paths of the installation's folders.

    Rule files are named relative to their folder, other files by the setting of their folder.
    """
    runtime: Runtime | None = getattr(request.app.state, "runtime", None)
    return text if runtime is None else _Paths.of(runtime.settings).hidden(text)


def response_without_host_paths(request: Request, text: str) -> str:
    """Return the text of a response to a read call without those paths.

    Text that the caller sent, and the text of rules, stay unchanged.
    """
    if request.method not in ("GET", "HEAD") or getattr(request.scope.get("route"), "path", "") in _OF_RULES:
        return text
    return without_host_paths(request, text)


class _Paths:
    """Replaces the folders of an installation by their names."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names
        longest_first = "|".join(re.escape(each) for each in sorted(names, key=len, reverse=True))
        self._found = re.compile(rf"(?:file://)?({longest_first})(/|(?![\w.-]))")

    @classmethod
    def of(cls, settings: Settings) -> _Paths:
        """Return the replacement for an installation."""
        return _paths(tuple(_folders(settings)))

    def hidden(self, text: str) -> str:
        """Return a text with the folders replaced."""
        return self._found.sub(self._name, text) if any(each in text for each in self._names) else text

    def _name(self, found: re.Match[str]) -> str:
        name = self._names[found[1]]
        return name + found[2] if name or not found[2] else ""


@lru_cache(maxsize=8)
def _paths(folders: tuple[tuple[str, str], ...]) -> _Paths:
    return _Paths({path: name for path, name in folders if path not in ("/", "")})


def _folders(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield each folder that a setting names, as written and resolved, with the name of the setting."""
    for field in type(settings).model_fields:
        value = getattr(settings, field)
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, Path) and each.is_absolute():
                # a rule file is named relative to its folder
                name = "" if field == "rules_folder" else f"EVENTBRIDGE_{field.upper()}"
                yield str(each), name
                yield str(each.resolve()), name
