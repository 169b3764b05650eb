"""The types of settings and their text forms: a folder, `60` or `1m`, `1048576` or `1MiB`, address blocks, URIs."""

from __future__ import annotations

import os
import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from eventbridge.config.quantities import parse_duration, parse_size


def setting(default: object, unit: str, reason: str, **limits: Any) -> Any:
    """Return the field of a setting: its default, or the function of earlier settings for it, its unit and reason."""
    if callable(default):
        return Field(default_factory=default, description=reason, json_schema_extra={"unit": unit}, **limits)
    return Field(default, description=reason, json_schema_extra={"unit": unit}, validate_default=True, **limits)


def _absolute(path: Path) -> Path:
    return Path.cwd() / path.expanduser()


# A negative number is parsed as a number: the limits of its field give a better message.


def _read_size(value: object) -> object:
    if isinstance(value, str):
        return -parse_size(value[1:]) if value.startswith("-") else parse_size(value)
    return value


def _read_seconds(value: object) -> object:
    if isinstance(value, str) and not re.fullmatch(r"-?\d+(\.\d+)?", value, re.ASCII):
        return -parse_duration(value[1:]) if value.startswith("-") else parse_duration(value)
    return value


def _read_count(value: object) -> object:
    if isinstance(value, str) and not re.fullmatch(r"-?[0-9][0-9_]*", value, re.ASCII):
        raise ValueError(f"{value!r} is not a whole number such as 500 or 50_000")
    return value


def _read_networks(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return tuple(ip_network(each, strict=False) for each in re.split(r"[\s,]+", value.strip(" ,")) if each)
    except ValueError:
        raise ValueError(f"{value!r} is not a list of address blocks such as 10.1.0.0/16, fd00::/8") from None


def _with_scheme(uri: str) -> str:
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", uri):
        raise ValueError("it has no scheme such as file:// or sqlite://")  # the value may hold a password
    return uri


def _no_folder(url: str) -> str:
    parts = re.match(r"sqlite(?:\+\w+)?:///([^?]+)", url)
    if parts is not None and Path(parts[1]).is_dir():
        folder = parts[1].rstrip("/")
        raise ValueError(
            f"{parts[1]} is a folder, and a ledger is a file. Name one in it, such as sqlite:///{folder}/ledger.sqlite"
        )
    return url


def _read_folders(value: object) -> object:
    return tuple(each.strip() for each in value.split(":") if each.strip()) if isinstance(value, str) else value


def _without_detours(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    return tuple(Path(os.path.normpath(_absolute(path))) for path in paths)


Folder = Annotated[Path, AfterValidator(_absolute)]
Folders = Annotated[tuple[Path, ...], BeforeValidator(_read_folders), AfterValidator(_without_detours)]
Size = Annotated[int, BeforeValidator(_read_size)]
Seconds = Annotated[float, BeforeValidator(_read_seconds)]
Count = Annotated[int, BeforeValidator(_read_count)]
Networks = Annotated[tuple[IPv4Network | IPv6Network, ...], BeforeValidator(_read_networks)]
Uri = Annotated[str, AfterValidator(_with_scheme)]
LedgerUrl = Annotated[Uri, AfterValidator(_no_folder)]
