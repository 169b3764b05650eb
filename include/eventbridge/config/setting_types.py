"""Defines the types of settings, how they are read from strings, and the messages about invalid values."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, TypeGuard

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, ValidationInfo
from pydantic.fields import FieldInfo

from eventbridge.config.quantities import parse_duration, parse_size
from eventbridge.similar_names import similar

PREFIX = "EVENTBRIDGE_"
_DNS_NAME = re.compile(r"(?!-)[a-z0-9-]+(\.[a-z0-9-]+)*", re.ASCII)
#: An origin as a browser knows it, with `*` for any subdomain, as in the directive frame-ancestors.
_WEB_ORIGIN = re.compile(r"https?://(\*\.)?(?!-)[a-z0-9-]+(\.[a-z0-9-]+)*(:\d{1,5})?", re.ASCII)
_BASE_URL = re.compile(r"https?://[A-Za-z0-9.\[\]:-]+(/[A-Za-z0-9._~/-]*)?", re.ASCII)
_CONNECTION_PREFIX = "EVENTBRIDGE_CONN_"
_LIMITS = {"ge": "at least", "gt": "above", "le": "at most"}
_OUT_OF_RANGE = {"greater_than_equal", "greater_than", "less_than_equal"}

#: The changes in Airflow that its listener can publish, by kind and new state.
AIRFLOW_CHANGES = (
    *(f"dag_run.{state}" for state in ("running", "success", "failed")),
    *(f"task_instance.{state}" for state in ("running", "success", "failed", "up_for_retry", "skipped")),
    "asset.changed",
)


def setting(default: object, unit: str, reason: str, **limits: Any) -> Any:
    """Return the field of a setting with its default (or a function of earlier settings), its unit and its
    description."""
    if callable(default):
        return Field(default_factory=default, description=reason, json_schema_extra={"unit": unit}, **limits)
    return Field(default, description=reason, json_schema_extra={"unit": unit}, validate_default=True, **limits)


def _absolute(path: Path) -> Path:
    return Path.cwd() / path.expanduser()


# A negative number is accepted here, because the limits of its field give a better message.
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


def _read_origins(value: object) -> object:
    if not isinstance(value, str):
        return value
    names = tuple(each.lower() for each in re.split(r"[\s,]+", value.strip(" ,")) if each)
    wrong = next((each for each in names if each != "*" and not _DNS_NAME.fullmatch(each)), "")
    if wrong:
        raise ValueError(f"{wrong!r} is not a DNS name such as eventgrid.azure.net, or * for any sender")
    return names


def _read_web_origins(value: object) -> object:
    if not isinstance(value, str):
        return value
    found = tuple(each.lower() for each in re.split(r"[\s,]+", value.strip(" ,")) if each)
    wrong = next((each for each in found if not _WEB_ORIGIN.fullmatch(each)), "")
    if wrong:
        raise ValueError(f"{wrong!r} is not the origin of a web page such as https://app.example.com, without a path")
    return found


def _read_base_url(value: object) -> object:
    if not isinstance(value, str):
        return value
    if not _BASE_URL.fullmatch(value):
        raise ValueError(f"{value!r} is not a URL such as https://events.example.com, without a query")
    return value.rstrip("/")


def _read_words(value: object) -> object:
    return tuple(re.split(r"[\s,]+", value.strip(" ,"))) if isinstance(value, str) else value


def _check_changes(patterns: tuple[str, ...]) -> tuple[str, ...]:
    for each in patterns:
        if not any(fnmatchcase(name, each) for name in AIRFLOW_CHANGES):
            raise ValueError(f"{each!r} names none of the changes: {', '.join(AIRFLOW_CHANGES)}")
    return patterns


def _require_scheme(uri: str) -> str:
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", uri):
        raise ValueError("it has no scheme such as file:// or sqlite://")  # the value may hold a password
    return uri


def _reject_folder(url: str) -> str:
    parts = re.match(r"sqlite(?:\+\w+)?:///([^?]+)", url)
    if parts is not None and Path(parts[1]).is_dir():
        folder = parts[1].rstrip("/")
        raise ValueError(
            f"{parts[1]} is a folder, but a ledger is a file. Name a file in it, such as sqlite:///{folder}/ledger.sqlite"
        )
    return url


def _check_escapes(url: str) -> str:
    if re.match(r"postgres[^:]*://[^@]*@[^/?]*@", url):
        raise ValueError("it has a second @ before the path. Write an @ in the password as %40")
    return url


def _read_folders(value: object) -> object:
    return tuple(each.strip() for each in value.split(":") if each.strip()) if isinstance(value, str) else value


def _normalized(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    return tuple(Path(os.path.normpath(_absolute(path))) for path in paths)


def is_bucket_prefix(value: object) -> TypeGuard[str]:
    """Return whether a value is a bucket prefix, `s3://connection@bucket/prefix`."""
    return isinstance(value, str) and value.startswith("s3://")


def _folder_or_bucket(value: object) -> object:
    return Path(value) if isinstance(value, str) and not is_bucket_prefix(value) else value


def _published_from_bucket(value: str, others: ValidationInfo) -> str:
    if value == "files" and is_bucket_prefix(others.data.get("rules_folder")):
        raise ValueError(
            "rule files in a bucket take effect only when they are published. "
            "Set it to published, and run `eventbridge rules publish`"
        )
    return value


FolderOrBucket = Annotated[Path | str, BeforeValidator(_folder_or_bucket)]


RulesFrom = Annotated[Literal["files", "published"], AfterValidator(_published_from_bucket)]


Folder = Annotated[Path, AfterValidator(_absolute)]


Folders = Annotated[tuple[Path, ...], BeforeValidator(_read_folders), AfterValidator(_normalized)]


_SizeText = Annotated[str, Field(pattern=r"^\d+(\.\d+)? ?([KMG]iB)?$")]
Size = Annotated[int, BeforeValidator(_read_size, json_schema_input_type=int | _SizeText)]


_SecondsText = Annotated[str, Field(pattern=r"^\d+(\.\d+)?(ms|s|m|h|d)?$")]
Seconds = Annotated[float, BeforeValidator(_read_seconds, json_schema_input_type=float | _SecondsText)]


Count = Annotated[int, BeforeValidator(_read_count)]


Networks = Annotated[tuple[IPv4Network | IPv6Network, ...], BeforeValidator(_read_networks)]


Origins = Annotated[tuple[str, ...], BeforeValidator(_read_origins)]


WebOrigins = Annotated[tuple[str, ...], BeforeValidator(_read_web_origins)]


BaseUrl = Annotated[str, BeforeValidator(_read_base_url)]


Patterns = Annotated[tuple[str, ...], BeforeValidator(_read_words)]


AirflowChanges = Annotated[Patterns, AfterValidator(_check_changes)]


Uri = Annotated[str, AfterValidator(_require_scheme)]


LedgerUrl = Annotated[Uri, AfterValidator(_reject_folder), AfterValidator(_check_escapes)]


def is_setting_name(name: str) -> bool:
    """Return whether a variable is read as a setting, even if no such setting exists."""
    return name.startswith(PREFIX) and not name.startswith(_CONNECTION_PREFIX)


def unknown_setting(name: str, fields: Mapping[str, FieldInfo]) -> str:
    """Return the message about a variable that is not a setting; it suggests the most similar name in `fields`."""
    names = [field.upper() for field in fields]
    near = similar(name.removeprefix(PREFIX).upper(), names)
    remedy = f"Did you mean {PREFIX}{near[0]}?" if near else "docs/reference/settings.md lists all settings."
    return f"unknown setting {name}. {remedy}"


def setting_errors(error: ValidationError, fields: Mapping[str, FieldInfo]) -> list[str]:
    """Return the messages about invalid values; they state the limits if a value is out of range."""
    found = []
    for item in error.errors(include_url=False):
        if item["type"] == "default_factory_not_called":  # a consequence of another wrong value
            continue
        limits = _limits(fields[str(item["loc"][0])]) if item["type"] in _OUT_OF_RANGE else ""
        message = f"{item['input']} is out of range: {limits}" if limits else item["msg"].removeprefix("Value error, ")
        name = f"{PREFIX}{str(item['loc'][0]).upper()}: " if item["loc"] else ""
        found.append(f"{name}{message}")
    return found


def _limits(field: FieldInfo) -> str:
    """Return the limits of a field, such as `at least 1 and at most 1024, in push tasks`."""
    unit = field.json_schema_extra["unit"] if isinstance(field.json_schema_extra, dict) else ""
    limits = {kind: getattr(each, kind) for each in field.metadata for kind in _LIMITS if hasattr(each, kind)}
    words = " and ".join(f"{word} {limits[kind]}" for kind, word in _LIMITS.items() if kind in limits)
    return f"it must be {words}, in {unit}"
