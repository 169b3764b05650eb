"""Checks the URLs and paths of targets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, unquote, unquote_plus, urlsplit

from eventbridge.rules.fields import is_secret_name

#: Names of URL parameters that carry a secret, in addition to those that `is_secret_name` recognises.
_SECRET_PARAMETER = re.compile(r"key$|signature$|^(sig|sign|code|auth|pwd|pass|jwt|hmac|session|sid|otp)$", re.I)
#: Regular expressions for the beginnings of secret webhook paths, by host; they also apply to the host's subdomains.
_SECRET_PATHS: Final = {
    "hooks.slack.com": "/.",
    "discord.com": "/api/(v[0-9]+/)?webhooks/.",
    "discordapp.com": "/api/(v[0-9]+/)?webhooks/.",
    "webhook.office.com": "/.",
    "outlook.office.com": "/webhook/.",
    "outlook.office365.com": "/webhook/.",
    "api.telegram.org": "/bot.",
    "hooks.zapier.com": "/hooks/.",
    "maker.ifttt.com": "/.*/key/.",
    "events.pagerduty.com": "/integration/.",
    "open.feishu.cn": "/open-apis/bot/.",
    "open.larksuite.com": "/open-apis/bot/.",
}
_SECRET_REMEDY = (
    "Put the whole URL into a connection, as its extra secret_url, and write connection: <id> instead of url"
)

_REMEDY = "Write one such as https://crm.example/hooks/orders"
_URL_CHARACTERS = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+", re.ASCII)
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\.?|\[[0-9A-Fa-f:.]+\]", re.ASCII)


def url_error(url: str, *, allow_http: bool) -> tuple[str, str] | None:
    """Return the error in an http target's URL and the remedy, or None if it is valid; neither shows a credential."""
    if "${" in url:
        return "a URL is used literally: ${...} is not replaced", "Write the full address"
    if not _URL_CHARACTERS.fullmatch(url) or _BAD_ESCAPE.search(url):
        return "the URL contains a character that is not allowed in URLs", "Escape it as %XX, a host name as xn--..."
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "the URL's host or port cannot be read", _REMEDY
    if parts.scheme not in ("http", "https"):
        return (
            f"the URL begins with {parts.scheme}: instead of https:" if parts.scheme else "this is not a URL",
            _REMEDY,
        )
    if "@" in parts.netloc:
        return "the URL contains a login or password", "Put them into a connection and name that: connection: <id>"
    for what in _secrets(parts):
        return what, _SECRET_REMEDY
    if not _HOST.fullmatch(parts.netloc.removesuffix(f":{port}")) or port == 0:
        return "the URL has no host, or an invalid one", _REMEDY
    if parts.fragment or url.endswith("#"):
        return "the URL has a #fragment, which is never sent", "Remove it"
    if parts.scheme == "http" and not allow_http:
        return (
            "the URL is http:, which anyone on the network path can read and change",
            "Write https:, or add allow_http: true",
        )
    return None


def _secrets(parts: SplitResult) -> Iterator[str]:
    """Yield descriptions of those parts of a URL that look like secrets, without showing the parts."""
    for parameter in re.split("[&;]", parts.query):
        name = unquote_plus(parameter.partition("=")[0])
        if is_secret_name(name) or _SECRET_PARAMETER.search(name):
            yield f"the URL's parameter {name!r} looks like a secret"
    host = (parts.hostname or "").rstrip(".")
    path = re.sub("/+", "/", unquote(parts.path))
    for known, begin in _SECRET_PATHS.items():
        if (host == known or host.endswith(f".{known}")) and re.match(begin, path, re.I):
            yield f"the URL's path is a secret: anyone who knows it can post to {known}"


def path_error(path: str) -> tuple[str, str] | None:
    """Return the error in a file target's path and the remedy, or None if it is valid."""
    if "${" in path or path.startswith("~"):
        return "a path is used literally: ~ and ${...} are not replaced", "Write the full path"
    if "\0" in path or not path.isprintable():
        return "the path contains an invisible character", "Remove it"
    if ".." in path.split("/"):
        return f"{path!r} contains '..'", "Write the path without it"
    if path.rsplit("/", 1)[-1].startswith(".") and path.rsplit("/", 1)[-1] != ".":
        return f"{path!r} is a hidden file, which file targets do not write", "Name another"
    if path.endswith("/") or path.rsplit("/", 1)[-1] == ".":
        return f"{path!r} is a folder", f"Name a file in it, such as {path.rstrip('/')}/deliveries.jsonl"
    return None


def path_obstacle(path: str) -> tuple[str, str] | None:
    """Return why a file target cannot write to its path on this machine and the remedy, or None if it can.

    Missing folders are no obstacle, since the target creates them. Permissions are not checked: the user who checks
    rules may not be the user that the delivery runs as.
    """
    try:
        return _obstacle(path)
    except PermissionError:
        return None
    except OSError as error:
        return f"{path[:60]!r} cannot be a file: {error.strerror}", "Name another"


def _obstacle(path: str) -> tuple[str, str] | None:
    file = Path(path)
    if file.is_dir():
        return f"{path!r} is a folder", f"Name a file in it, such as {path}/deliveries.jsonl"
    if file.exists() and not file.is_file():
        return f"{path!r} exists, but is not a file", "Name another"
    above = next((each for each in file.parents if each.exists()), None)
    if above is not None and not above.is_dir():
        return f"{str(above)!r} is a file, so it cannot be a folder of {path!r}", "Name another path, or move that file"
    return None
