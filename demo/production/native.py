"""Runs a service of the compose file without a container, with its own address and folders.

Substitutions replace the namespaces of a container engine: the name of a service becomes a loopback address, on which
it has its container's port; the path of a volume becomes a folder; the paths of EventBridge's image become those of the
checkout.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from demo.config import ROOT
from demo.production.compose import Service
from eventbridge.spark.environment import spark_home

#: The variables that the container engine would set, or that keep a service on this machine. They are no settings.
ADDED: Final = ("PATH", "HOME", "HOSTNAME", "SPARK_HOME", "SPARK_LOCAL_IP")


@dataclass(frozen=True)
class Process:
    """One process to start: a replica of a service."""

    name: str
    service: Service
    address: str
    command: tuple[str, ...]
    environment: Mapping[str, str]


class Substitutions:
    """The substitutions of one environment."""

    def __init__(self, services: Mapping[str, Service], folder: Path) -> None:
        self._services = services
        self._folder = folder
        # All of 127.0.0.0/8 is local; each environment uses its own network.
        network = f"127.{64 + secrets.randbelow(64)}.{secrets.randbelow(256)}"
        names = [f"{service.name}-{number}" for service in services.values() for number in range(service.replicas)]
        self._addresses = {name: f"{network}.{number}" for number, name in enumerate(names, start=1)}

    def address(self, service: str, replica: int = 0) -> str:
        """Return the address that replaces a service's name."""
        return self._addresses[f"{service}-{replica}"]

    def volume(self, name: str) -> Path:
        """Return the folder for a named volume, or the folder of the checkout."""
        return (ROOT / name) if name.startswith(("./", "/")) else self._folder / "volumes" / name

    def processes(self, service: Service) -> list[Process]:
        """Return the processes of a service, one per replica."""
        return [self._process(service, replica) for replica in range(service.replicas)]

    def here(self, service: Service, words: Sequence[str], replica: int = 0) -> tuple[str, ...]:
        """Return the words of a service's command with substitutions."""
        return tuple(self._substitute(service, replica, word) for word in words)

    def paths(self, service: Service) -> dict[str, Path]:
        """Return the local paths for paths inside a service's container."""
        from s3proxy.server import JAR

        return {
            "/opt/eventbridge": ROOT,
            "/opt/airflow": self._folder / "airflow",
            "/opt/s3proxy/s3proxy.jar": JAR,
            "/var/lib/spark": self._folder / "spark",
            **{path: self.volume(name) for path, name in service.volumes.items()},
        }

    def _process(self, service: Service, replica: int) -> Process:
        name = service.name if service.replicas == 1 else f"{service.name}-{replica + 1}"
        address = self.address(service.name, replica)
        environment = {key: self._substitute(service, replica, value) for key, value in service.environment.items()}
        added = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "HOME": str(self._folder / "home"),
            "HOSTNAME": name,
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": address,
        }
        assert tuple(added) == ADDED
        return Process(name, service, address, self.here(service, service.command, replica), environment | added)

    def _substitute(self, service: Service, replica: int, text: str) -> str:
        for path, folder in sorted(self.paths(service).items(), key=lambda each: -len(each[0])):
            text = re.sub(rf"(?<![\w.-]){re.escape(path)}(?=[/:\s]|$)", str(folder), text)
        for other in self._services:
            # A host follows one of these, before a port or the end: `s3://bucket` contains none, nor does `lib/s3`.
            text = re.sub(rf"(^|[=@,]|//){re.escape(other)}(?=:\d|$)", rf"\g<1>{self.address(other)}", text)
        return text.replace("0.0.0.0", self.address(service.name, replica))
