"""A TCP proxy that breaks connections within responses, like a server that dies or a network that fails."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

_PIECE_BYTES = 1 << 16


class CutProxy:
    """Passes connections on to a port of 127.0.0.1 while the context is open, each way piece by piece.

    `cut` is asked with the number of each piece of a response, the first being 1: of one that is cut half is passed on,
    and its connection ends. `done` counts those.
    """

    def __init__(self, upstream: int, port: int = 0) -> None:
        self.cut: Callable[[int], bool] = lambda number: False
        self.done = 0
        self._upstream = upstream
        self._server = socket.create_server(("127.0.0.1", port))
        self._open: list[socket.socket] = []
        self._lock = threading.Condition()
        self._seen = 0

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.getsockname()[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, name="cut proxy", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        with self._lock:
            for each in self._open:
                _end(each)
            self._lock.wait_for(lambda: not self._open, 10)

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._upstream))
                except OSError:
                    client.close()
                    continue
                with self._lock:
                    self._open += [client, server]
                threading.Thread(target=self._carry, args=(client, server), daemon=True).start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        asking = threading.Thread(target=self._pass, args=(client, server, False), daemon=True)
        asking.start()
        self._pass(server, client, True)
        asking.join()
        with self._lock:
            for each in (client, server):
                self._open.remove(each)
                each.close()
            self._lock.notify()

    def _pass(self, source: socket.socket, target: socket.socket, is_response: bool) -> None:
        with suppress(OSError):
            while piece := source.recv(_PIECE_BYTES):
                if is_response and self._is_cut():
                    target.sendall(piece[: len(piece) // 2])
                    break
                target.sendall(piece)
        for each in (source, target):
            _end(each)  # so that the other direction ends too

    def _is_cut(self) -> bool:
        with self._lock:
            self._seen += 1
            found = self.cut(self._seen)
            self.done += found
            return found


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
