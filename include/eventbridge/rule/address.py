"""Checks where a target says that deliveries go: URLs and paths."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

from eventbridge.rule.fields import is_secret_name

_REMEDY = "Write one such as https://crm.example/hooks/orders"
_URL_CHARACTERS = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+", re.ASCII)
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\.?|\[[0-9A-Fa-f:.]+\]", re.ASCII)


def url_mistake(url: str, *, allow_http: bool) -> tuple[str, str] | None:
    """Return what is wrong with an http target's URL, and the remedy; the message never shows a credential."""
    if "${" in url:
        return "a URL is used as it stands, and ${...} is not replaced", "Write the address out"
    if not _URL_CHARACTERS.fullmatch(url) or _BAD_ESCAPE.search(url):
        return "the URL holds a character that URLs do not have", "Escape it as %XX, a host name as xn--..."
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "the URL's host or port cannot be read", _REMEDY
    if parts.scheme not in ("http", "https"):
        return f"the URL begins with {parts.scheme}: and not with https:" if parts.scheme else "it is no URL", _REMEDY
    if "@" in parts.netloc:
        return "the URL holds a login or password", "Put them into a connection and name that: connection: <id>"
    secret = next((name for name, _ in parse_qsl(parts.query, keep_blank_values=True) if is_secret_name(name)), None)
    if secret is not None:
        return f"the URL's parameter {secret!r} looks like a secret", "Put it into a connection: connection: <id>"
    if not _HOST.fullmatch(parts.netloc.removesuffix(f":{port}")) or port == 0:
        return "the URL names no host, or none that can be", _REMEDY
    if parts.fragment or url.endswith("#"):
        return "the URL has a #fragment, which is never sent", "Remove it"
    if parts.scheme == "http" and not allow_http:
        return "the URL is http:, which anyone on the way can read and change", "Write https:, or add allow_http: true"
    return None


def path_mistake(path: str) -> tuple[str, str] | None:
    """Return what is wrong with a file target's path, and the remedy."""
    if "${" in path or path.startswith("~"):
        return "a path is used as it stands: ~ and ${...} are not replaced", "Write the path out"
    if "\0" in path or not path.isprintable():
        return "the path holds a character that cannot be seen", "Remove it"
    if path.endswith("/") or path.rsplit("/", 1)[-1] in (".", ".."):
        return f"{path!r} is a folder", f"Name a file in it, such as {path.rstrip('/')}/deliveries.jsonl"
    return None
