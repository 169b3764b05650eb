"""A network namespace for servers that listen on all addresses: only some ports of 127.0.0.1 are forwarded into it.

Run as a program: it listens on the ports that are its arguments, moves into a new network namespace that has nothing
but a loopback device, and passes on each connection to the same port there.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Final

from java_tools import ToolMissing

_NEW_USER: Final = 0x10000000
_NEW_NETWORK: Final = 0x40000000
_GET_FLAGS, _SET_FLAGS, _IS_UP = 0x8913, 0x8914, 1
_READY: Final = b"ready\n"


class OwnNetwork:
    """A network for the block; `command` starts a program in it."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = ports
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> OwnNetwork:
        program = [sys.executable, str(Path(__file__)), *map(str, self._ports)]
        environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        self._process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ)
        assert self._process.stdout is not None
        if self._process.stdout.readline() != _READY:
            self._process.wait()
            raise ToolMissing("No network namespace can be made: run the tests as root, or allow user namespaces.")
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.communicate()

    def command(self, *words: str) -> list[str]:
        """Return the command that runs a program in this network."""
        assert self._process is not None
        as_user = [] if os.getuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", "--target", str(self._process.pid), "--net", *as_user, *words]


def _move() -> None:
    """Move this process to a new network namespace."""
    kind = _NEW_NETWORK if os.getuid() == 0 else _NEW_NETWORK | _NEW_USER
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(kind):
        raise OSError(ctypes.get_errno(), "no network namespace")
    with socket.socket() as asking:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(asking, _GET_FLAGS, request))[1]
        fcntl.ioctl(asking, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags | _IS_UP))


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 18):
            sink.sendall(data)
    for each in (source, sink):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def _serve(listener: socket.socket, port: int) -> None:
    while True:
        client, _ = listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", port))
        except OSError:
            client.close()
            continue
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        Thread(target=_pass_on, args=(client, server), daemon=True).start()
        Thread(target=_pass_on, args=(server, client), daemon=True).start()


def main() -> None:
    """Forward the ports until standard input ends, as then the parent has ended."""
    ports = [int(word) for word in sys.argv[1:]]
    listeners = [socket.create_server(("127.0.0.1", port)) for port in ports]
    _move()
    for listener, port in zip(listeners, ports, strict=True):
        Thread(target=_serve, args=(listener, port), daemon=True).start()
    os.write(1, _READY)
    sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
