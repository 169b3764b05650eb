"""Reads `docker-compose.yaml` as a container engine does: substitutes variables, and returns the services by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from demo.config import ROOT, DemoError

FILE: Final = ROOT / "docker-compose.yaml"
#: The prefix of EventBridge's image.
OWN_IMAGE: Final = "eventbridge:"

_VARIABLE = re.compile(r"\$(?:(?P<dollar>\$)|\{(?P<name>[A-Z_0-9]+)(?:(?P<kind>:-|:\?)(?P<other>[^}]*))?\})")
_COMPLETED = "service_completed_successfully"


@dataclass(frozen=True)
class Service:
    """One service of the file, with the fields that are needed to run it without containers."""

    name: str
    image: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    #: The mounts: a volume's name or a path of the checkout, by the path inside the container.
    volumes: Mapping[str, str]
    #: The services that this one waits for: True if one must have ended successfully, False if it must be healthy.
    waits_for_end: Mapping[str, bool]
    #: The command of its health check, if it runs EventBridge's image.
    check: tuple[str, ...]
    replicas: int
    restarts: bool

    @property
    def is_own(self) -> bool:
        """Whether it runs EventBridge's image."""
        return self.image.startswith(OWN_IMAGE)

    @property
    def is_one_shot(self) -> bool:
        """Whether it is expected to end."""
        return not self.restarts


def substitute(text: str, variables: Mapping[str, str]) -> str:
    """Return the text with its `${NAME}`, `${NAME:-default}` and `${NAME:?error}` replaced; `$$` is a `$`.

    Raises DemoError if a required variable is empty.
    """

    def value(found: re.Match[str]) -> str:
        if found["dollar"]:
            return "$"
        given = variables.get(found["name"], "")
        if given or found["kind"] is None:
            return given
        if found["kind"] == ":-":
            return found["other"]
        raise DemoError(f"{found['name']} is not set: {found['other']}")

    return _VARIABLE.sub(value, text)


def document(variables: Mapping[str, str], file: Path = FILE) -> dict[str, Any]:
    """Return the parsed file with its variables substituted in the values, as an engine does."""
    found: dict[str, Any] = _filled(yaml.safe_load(file.read_text()), variables)
    for service in found["services"].values():
        if "deploy" in service:
            service["deploy"]["replicas"] = int(service["deploy"]["replicas"])
    return found


def _filled(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return substitute(value, variables)
    if isinstance(value, dict):
        return {key: _filled(each, variables) for key, each in value.items()}
    return [_filled(each, variables) for each in value] if isinstance(value, list) else value


def services(variables: Mapping[str, str], file: Path = FILE) -> dict[str, Service]:
    """Return the services without a profile, by name."""
    found = document(variables, file)["services"]
    return {name: _service(name, fields) for name, fields in found.items() if not fields.get("profiles")}


def _service(name: str, fields: Mapping[str, Any]) -> Service:
    check = fields.get("healthcheck", {}).get("test", [])
    waits = {other: how["condition"] == _COMPLETED for other, how in fields.get("depends_on", {}).items()}
    volumes = (volume.split(":") for volume in fields.get("volumes", []))
    return Service(
        name=name,
        image=fields["image"],
        command=tuple(str(word) for word in fields.get("command", [])),
        environment={key: str(value) for key, value in fields.get("environment", {}).items()},
        volumes={parts[1]: parts[0] for parts in volumes},
        waits_for_end=waits,
        check=tuple(check[1:]) if fields["image"].startswith(OWN_IMAGE) else (),
        replicas=fields.get("deploy", {}).get("replicas", 1),
        restarts=fields["restart"] != "no",
    )
