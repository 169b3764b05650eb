"""A CONNECT proxy in a thread, which records what it was asked and may refuse it."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path
from typing import Self

#: The status of a proxy that does not respond.
HANGS = 0
#: The status of a proxy whose response has headers without end.
ENDLESS = 200


class ConnectProxy:
    """Tunnels to any address, in a `with` block; with a `status`, it responds to CONNECT with that instead, and with
    HANGS not at all.

    With a `certificate`, clients connect by TLS. `connects` has the head of each CONNECT request, in order.
    """

    def __init__(self, status: int | None = None, certificate: Path | None = None) -> None:
        self.status = status
        self._tls = None
        if certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(certificate)
        self.connects: list[str] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        if self._tls is not None:
            try:
                client = self._tls.wrap_socket(client, server_side=True)
            except OSError:  # the client does not trust the certificate
                client.close()
                return
        with client:
            head = b""
            while b"\r\n\r\n" not in head:
                part = _received(client, 4096)
                if not part:
                    return
                head += part
            self.connects.append(head.decode())
            if self.status == HANGS:
                _received(client, 1)  # until the client gives up
                return
            if self.status == ENDLESS:
                _send_headers(client)
                return
            if self.status is not None:
                client.sendall(f"HTTP/1.1 {self.status} No\r\nContent-Length: 0\r\n\r\n".encode())
                return
            host, _, port = head.split()[1].decode().rpartition(":")
            with socket.create_connection((host.strip("[]"), int(port))) as upstream:
                client.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
                back = threading.Thread(target=_copy, args=(upstream, client), daemon=True)
                back.start()
                _copy(client, upstream)
                back.join()


def _received(client: socket.socket, size: int) -> bytes:
    """Return what the client sends, nothing if it has gone; a client of TLS 1.3 refuses a certificate only here."""
    try:
        return client.recv(size)
    except OSError:
        return b""


def _send_headers(client: socket.socket) -> None:
    try:
        client.sendall(b"HTTP/1.1 200 Connected\r\n")
        while True:
            client.sendall(b"X-A: " + b"a" * 1000 + b"\r\n")
    except OSError:
        pass


def _copy(source: socket.socket, sink: socket.socket) -> None:
    try:
        while part := source.recv(65536):
            sink.sendall(part)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass
