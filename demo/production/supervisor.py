"""Starts the services of the compose file in order, restarts those that die, and stops them all."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from demo.config import ROOT, DemoError
from demo.production.compose import Service, services
from demo.production.images import PORTS, follow_up, image_of, prepare
from demo.production.native import Process, Substitutions
from demo.services import note_groups, stop_groups

#: On two busy cores, fifteen services take minutes to start.
_READY_SECONDS: Final = 600.0
_POLL_SECONDS: Final = 0.5
_CHECK_SECONDS: Final = 60.0
#: A failed check is repeated after this multiple of its duration, to leave the CPU to starting services.
_PATIENCE: Final = 5.0


@dataclass
class Supervisor:
    """The running services; each process is a process group of its own, as a container would be."""

    folder: Path
    services: Mapping[str, Service]
    native: Substitutions
    print_line: Callable[[str], None]
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _processes: dict[str, Process] = field(default_factory=dict)
    _healthy: set[str] = field(default_factory=set)
    _next_check: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, variables: Mapping[str, str], folder: Path, print_line: Callable[[str], None]) -> Supervisor:
        """Read the compose file with these variables, for a new environment in an empty folder."""
        return cls.of_services(services(variables), folder, print_line)

    @classmethod
    def of_services(cls, found: Mapping[str, Service], folder: Path, print_line: Callable[[str], None]) -> Supervisor:
        """Create the folders of these services."""
        for made in ("logs", "home", "airflow", "spark", "volumes"):
            (folder / made).mkdir(parents=True)
        native = Substitutions(found, folder)
        for service in found.values():
            for name in service.volumes.values():
                native.volume(name).mkdir(parents=True, exist_ok=True)
        return cls(folder, found, native, print_line)

    def start(self) -> None:
        """Start every service once its dependencies are healthy; return once all are healthy. Raises DemoError."""
        until = time.monotonic() + _READY_SECONDS
        while waiting := [name for name in self.services if not self._is_healthy(name)]:
            for name in waiting:
                if not self._is_started(name) and self._may_start(name):
                    for process in self.native.processes(self.services[name]):
                        self._processes[process.name] = process
                        self._spawn(process)
            self.check()
            if time.monotonic() > until:
                raise DemoError(
                    f"After {_READY_SECONDS:g} s {', '.join(waiting)} is not healthy. See {self.folder}/logs"
                )
            time.sleep(_POLL_SECONDS)

    def restart_ended(self) -> None:
        """Restart processes that have ended, as an engine does for `restart: unless-stopped`."""
        for name, running in list(self.running.items()):
            if running.poll() is not None and self._processes[name].service.restarts:
                stop_groups({name: running.pid})  # with a container, the rest of its group would be gone
                self.print_line(f"{name} ended with {running.returncode}; restarting it")
                self._spawn(self._processes[name])

    def check(self) -> None:
        """Raise DemoError, with the end of its log, if a process has ended unexpectedly."""
        for name, running in self.running.items():
            if running.poll() not in (None, 0) or (
                running.returncode == 0 and not self._processes[name].service.is_one_shot
            ):
                log = self.folder / "logs" / f"{name}.log"
                words = log.read_text(errors="replace").strip()[-1500:]
                raise DemoError(f"{name} ended with {running.returncode}: {words} ({log})")

    def kill(self, name: str) -> None:
        """Kill a process with all of its group, as the loss of its container does."""
        os.killpg(self.running[name].pid, signal.SIGKILL)

    def environment(self, service: str) -> dict[str, str]:
        """Return the environment of a service, for a command that uses the same installation."""
        return dict(self.native.processes(self.services[service])[0].environment)

    def stop(self, but: Collection[str] = ()) -> None:
        """Stop the processes of all services except those in `but`; third-party servers last."""
        ending = {name for name in self.running if self._processes[name].service.name not in but}
        servers = {name for name in ending if not self._processes[name].service.is_own}
        for group in (ending - servers, servers):
            stop_groups({name: self.running[name].pid for name in group})
        for name in ending:
            self.running.pop(name).wait()
        if not self.running:
            remove_data(self.folder)

    def _spawn(self, process: Process) -> None:
        if not process.service.is_own:
            (volume,) = process.service.volumes.values()
            process = prepare(process, self.native.volume(volume))
        with (self.folder / "logs" / f"{process.name}.log").open("ab") as output:
            self.running[process.name] = subprocess.Popen(
                process.command,
                env=dict(process.environment),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        note_groups(self.folder, {name: running.pid for name, running in self.running.items()})

    def _is_started(self, name: str) -> bool:
        return any(process.service.name == name for process in self._processes.values())

    def _may_start(self, name: str) -> bool:
        return all(self._is_healthy(other) for other in self.services[name].waits_for_end)

    def _is_healthy(self, name: str) -> bool:
        if name not in self._healthy and self._is_started(name) and self._passes(name):
            self._healthy.add(name)
        return name in self._healthy

    def _passes(self, name: str) -> bool:
        mine = [process for process in self._processes.values() if process.service.name == name]
        service = self.services[name]
        if service.is_one_shot:
            return all(self.running[process.name].poll() == 0 for process in mine)
        if not service.is_own:
            return all(self._is_listening(process) for process in mine)
        return all(self._passes_check(process, replica) for replica, process in enumerate(mine))

    def _passes_check(self, process: Process, replica: int) -> bool:
        """Run the service's health check, as an engine does inside the container."""
        if not process.service.check:
            return True
        began = time.monotonic()
        if began < self._next_check.get(process.name, 0.0):
            return False
        command = self.native.here(process.service, process.service.check, replica)
        try:
            done = subprocess.run(
                command,
                env=dict(process.environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_CHECK_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
        finally:
            self._next_check[process.name] = time.monotonic() + _PATIENCE * (time.monotonic() - began)
        return done.returncode == 0

    def _is_listening(self, process: Process) -> bool:
        with socket.socket() as client:
            if client.connect_ex((process.address, PORTS[image_of(process)])):
                return False
        follow_up(process)
        return True


def remove_data(folder: Path) -> None:
    """Remove the environment's data outside its folder: those of PostgreSQL, which runs as another user."""
    linked = folder / "volumes" / "postgresql" / "folder"
    if linked.is_symlink():
        shutil.rmtree(linked.resolve(), ignore_errors=True)
