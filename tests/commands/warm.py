"""Runs modules as `python -m` does, each in a fork of a process that has imported what commands of the product need.

A program: listens at the abstract address that its argument names, until standard input ends. `client.py` sends, with
the three standard descriptors, one line of JSON, `[[module, arguments...], folder, environment]`; it gets, on a line
each, the number of the process and its exit code. If the client ends, the process is killed.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass

import pandas  # noqa: F401  # pyarrow imports it at its first table
import pyarrow.parquet  # noqa: F401

from eventbridge.routing.warm_up import compile_ahead

_COMMANDS = (
    "api",
    "cli",
    "ledger",
    "spark",
    "backtest",
    "control",
    "dead_letters",
    "delivery",
    "pipeline",
    "quality",
    "repair",
    "replay",
    "runtime",
    "streaming",
    "upkeep",
    "views",
)
_LEFT_OUT = ("__main__", ".migrations", ".quality")
_LONGEST = 1 << 20


@dataclass(frozen=True)
class _Command:
    """A running process, the descriptor that reports its end, and the client that waits for it."""

    process: int
    end: int
    client: socket.socket


def main() -> None:
    """Serve until standard input ends; in a fork, return when its command has ended well."""
    for name in _COMMANDS:
        for found in pkgutil.walk_packages([*_folders(name)], f"eventbridge.{name}."):
            if not any(part in found.name for part in _LEFT_OUT):
                importlib.import_module(found.name)
    compile_ahead()
    assert threading.active_count() == 1, "a fork has one thread"
    assert "duckdb" not in sys.modules, "it reports at the end of every process what it leaks"
    gc.freeze()  # forks would copy every page that a collection touches
    running: set[_Command] = set()
    with selectors.DefaultSelector() as selector, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"\0{sys.argv[1]}")
        listening.listen()
        selector.register(listening, selectors.EVENT_READ)
        selector.register(0, selectors.EVENT_READ)
        os.write(1, b"ready\n")
        try:
            while (order := _next(selector, listening, running)) is not None:
                if order:
                    break
        except KeyboardInterrupt:
            order = None
    if order:
        _run(order)
    for command in running:
        os.kill(command.process, signal.SIGKILL)


def _folders(name: str) -> list[str]:
    return list(importlib.import_module(f"eventbridge.{name}").__path__)


def _next(selector: selectors.BaseSelector, listening: socket.socket, running: set[_Command]) -> str | None:
    """Do what is to be done next; return, in a fork, what it is to run, else "", or None when standard input ends."""
    for key, _ in selector.select():
        if key.fileobj == 0:
            return None
        if key.fileobj is listening:
            client, _ = listening.accept()
            if order := _begin(client, selector, running):
                return order
        elif key.data in running:
            _end(key.data, selector, reported=key.fileobj == key.data.end)
            running.remove(key.data)
    return ""


def _begin(client: socket.socket, selector: selectors.BaseSelector, running: set[_Command]) -> str:
    text, descriptors, _, _ = socket.recv_fds(client, _LONGEST, 3)
    while not text.endswith(b"\n") and (more := client.recv(_LONGEST)):
        text += more
    process = os.fork() if text.endswith(b"\n") else None  # else it has gone
    if process == 0:
        os.setpgid(0, 0)
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        running.clear()
        client.close()
        return text.decode()
    for descriptor in descriptors:
        os.close(descriptor)
    if process is None:
        client.close()
        return ""
    _send_number(client, process)
    command = _Command(process, os.pidfd_open(process), client)
    running.add(command)
    for end in (command.end, client):
        selector.register(end, selectors.EVENT_READ, command)
    return ""


def _end(command: _Command, selector: selectors.BaseSelector, *, reported: bool) -> None:
    """Send the exit code of a command to its client, or kill the command of a client that has ended."""
    for end in (command.end, command.client):
        selector.unregister(end)
    if not reported:
        os.kill(command.process, signal.SIGKILL)
    _, status = os.waitpid(command.process, 0)
    os.close(command.end)
    with command.client as client:
        if reported:
            code = os.waitstatus_to_exitcode(status)
            _send_number(client, code if code >= 0 else 128 - code)


def _send_number(client: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # it may have gone
        client.sendall(b"%d\n" % number)


def _run(order: str) -> None:
    """Be the process of a command, as `python -m` is."""
    sys.argv, folder, environ = json.loads(order)
    os.chdir(folder)
    sys.path[:1] = [folder, *filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
