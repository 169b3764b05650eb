"""Replaces the paths of an installation's folders in responses with the names of their settings."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import quote

from markupsafe import escape
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from eventbridge.config.settings import Settings
from eventbridge.runtime.runtime import Runtime

#: Routes whose response, unless it is an error, shows the text of rules, with paths as their author wrote them.
_OF_RULES: Final = frozenset(
    {
        *("/v1/rules", "/v1/rules/{rule}", "/v1/rules/{rule}/versions", "/v1/rule-changes"),
        *("/page/rules/{name}", "/page/rules/{name}/test"),
    }
)


#: Matches the text of a form field, which stays as its author wrote it, because the browser sends the field again.
_FORM_TEXT: Final = re.compile(r"(<textarea[^>]*>.*?</textarea>)", re.DOTALL)
#: Content types of responses that hold only EventBridge's own text.
_STATIC: Final = ("text/css", "text/javascript")
#: The size above which a body is searched in a thread.
_LARGE: Final = 64 * 1024


class HostPaths:
    """Replaces the paths of the installation's folders in every response, whatever its route, method or status.

    Rule files are named relative to their folder, other files by the setting of their folder. The text of rules, and
    the text fields of forms, stay unchanged.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._known: tuple[Settings, _Paths] | None = None

    def _paths(self, settings: Settings) -> _Paths:
        """Return the replacement for an installation; cached, as resolving its folders costs more than a small call."""
        if self._known is None or self._known[0] is not settings:
            self._known = settings, _Paths.from_settings(settings)
        return self._known[1]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a call."""
        begin: Message | None = None
        body = bytearray()

        async def send_without_paths(message: Message) -> None:
            nonlocal begin
            if message["type"] == "http.response.start" and not _is_exempt(scope, message):
                begin = message
                return
            if begin is None or message["type"] != "http.response.body":
                await send(message)
                return
            body.extend(message.get("body", b""))
            if message.get("more_body", False):
                return
            content = await self._hide_paths(scope, bytes(body), is_page=_type(begin).startswith("text/html"))
            MutableHeaders(scope=begin)["content-length"] = str(len(content))
            await send(begin)
            await send({"type": "http.response.body", "body": content})

        await self._app(scope, receive, send_without_paths if scope["type"] == "http" else send)

    async def _hide_paths(self, scope: Scope, body: bytes, *, is_page: bool) -> bytes:
        runtime: Runtime | None = getattr(scope["app"].state, "runtime", None)
        if runtime is None:
            return body
        hidden = partial(self._paths(runtime.settings).hide, body, is_page=is_page)
        return await asyncio.to_thread(hidden) if len(body) > _LARGE else hidden()


def _is_exempt(scope: Scope, begin: Message) -> bool:
    is_of_rules = getattr(scope.get("route"), "path", "") in _OF_RULES and begin["status"] == HTTPStatus.OK
    return is_of_rules or _type(begin).startswith(_STATIC)


def _type(begin: Message) -> str:
    return Headers(raw=begin["headers"]).get("content-type", "")


class _Paths:
    """Replaces the folders of an installation with the names of their settings."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names
        self._bytes = [each.encode("utf-8", "surrogateescape") for each in names]
        longest_first = "|".join(re.escape(each) for each in sorted(names, key=len, reverse=True))
        self._found = re.compile(rf"(?:file://)?({longest_first})(/|(?![\w.-]))")

    @classmethod
    def from_settings(cls, settings: Settings) -> _Paths:
        """Return the replacement for an installation."""
        folders = [each for each in _folders(settings) if each[0] not in ("/", "")]
        return cls({found: name for path, name in folders for found in _spellings(path)})

    def hide(self, body: bytes, *, is_page: bool) -> bytes:
        """Return a body with the folders replaced; the text fields of a page's forms stay unchanged."""
        if not any(each in body for each in self._bytes):
            return body
        text = body.decode("utf-8", "surrogateescape")
        parts = _FORM_TEXT.split(text) if is_page else [text]
        parts[::2] = [self._found.sub(self._name, part) for part in parts[::2]]
        return "".join(parts).encode("utf-8", "surrogateescape")

    def _name(self, match: re.Match[str]) -> str:
        name = self._names[match[1]]
        return name + match[2] if name or not match[2] else ""


def _spellings(path: str) -> Iterator[str]:
    """Yield the forms in which text, JSON, HTML and URLs contain a path."""
    yield path
    yield json.dumps(path)[1:-1]
    yield json.dumps(path, ensure_ascii=False)[1:-1]
    yield str(escape(path))
    yield quote(path, errors="surrogateescape")
    yield quote(path, safe="", errors="surrogateescape")


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
