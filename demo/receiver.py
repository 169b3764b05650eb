"""An HTTP receiver in its own process: tests and the demo deliver to it and compare its log with the reconciliation.

`python -m demo.receiver --port 0 --log FILE` prints its port and serves on 127.0.0.1 until it is
stopped. `receiver_paths` defines its responses. Each request is one JSON line in FILE, written before the response is
sent: `at` (ISO 8601, UTC), `path`, `webhook_id`, `status` (null: never responded to), `in_flight` (requests open at
that moment), `connection` (its number); for a batch request also `webhook_ids`, and `item_statuses`, the status of each
delivery; with `--whole` also `method`, `headers` (names in lower case) and `body` (base64).
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from demo.receiver_http import Connection, RequestLog
from demo.receiver_paths import Paths
from eventbridge.processes import child_environment

#: The address block of receivers, required in EVENTBRIDGE_ALLOW_ADDRESSES.
ADDRESSES = "127.0.0.0/8"

_START_SECONDS = 30.0
_POLL_SECONDS = 0.01


class Receiver:
    """The receiver as a child process, in a `with` block; it ends with the block, and if this process dies.

    `certificate` is a PEM file of key and certificate: with it the receiver speaks TLS. `client_ca_certificates` is one
    of certificates: with it every client must present a certificate that one of them signed.
    `http2`: it also offers HTTP/2, which requires the package h2.
    """

    def __init__(
        self,
        log: Path,
        *,
        whole: bool = False,
        certificate: Path | None = None,
        client_ca_certificates: Path | None = None,
        http2: bool = False,
    ) -> None:
        self._log = log
        self._whole = whole
        self._certificate = certificate
        self._client_ca_certificates = client_ca_certificates
        self._http2 = http2
        self.port = 0
        self._received: list[dict[str, Any]] = []
        self._read = 0  # length of these in the log, in bytes
        self._reading = threading.Lock()

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "demo.receiver", "--port", "0", "--log", str(self._log)]
        command += ["--with-parent"]
        command += ["--whole"] if self._whole else []
        command += ["--certificate", str(self._certificate)] if self._certificate else []
        command += (
            ["--client-ca-certificates", str(self._client_ca_certificates)] if self._client_ca_certificates else []
        )
        command += ["--http2"] if self._http2 else []
        environ = child_environment() | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.strip().isdecimal():
            self.__exit__(None, None, None)
            raise RuntimeError(f"the receiver did not start: it printed {line!r}")
        self.port = int(line)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait(_START_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def url(self, path: str) -> str:
        """Return the URL of a path such as `/healthy/crm`."""
        scheme = "https" if self._certificate else "http"
        return f"{scheme}://127.0.0.1:{self.port}{path}"

    def requests(self, first: int = 0) -> list[dict[str, Any]]:
        """Return the requests so far, in order, without the first `first`; with `whole`, `body` as bytes."""
        with self._reading:
            if self._log.exists():
                self._read_on()
            return [dict(request) for request in self._received[first:]]

    def _read_on(self) -> None:
        """Read the new lines of the log: a caller that waits for a request polls it."""
        with self._log.open("rb") as log:
            log.seek(self._read)
            lines, end, _ = log.read().rpartition(b"\n")  # the text after the last line end is still being written
        self._read += len(lines) + len(end)
        for line in lines.split(b"\n") if end else ():
            request = json.loads(line)
            if "body" in request:
                request["body"] = base64.b64decode(request["body"])
            self._received.append(request)

    def wait_for(self, count: int, seconds: float = 30.0) -> list[dict[str, Any]]:
        """Return the requests once there are at least `count`; raises TimeoutError after `seconds`."""
        end = time.monotonic() + seconds
        while len(received := self.requests()) < count:
            if time.monotonic() > end:
                raise TimeoutError(f"{len(received)} of {count} requests came within {seconds} s")
            time.sleep(_POLL_SECONDS)
        return received


async def _serve(
    port: int, log: Path, context: ssl.SSLContext | None, *, whole: bool, http2: bool, with_parent: bool
) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    if with_parent:  # the parent never writes: its end of the pipe closes when it ends
        loop.add_reader(0, lambda: ended.set() if not os.read(0, 1024) else None)
    log.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    paths, record = Paths(), RequestLog(descriptor, whole)
    speak = _protocol(http2=http2)
    server = await loop.create_server(lambda: speak(paths, record), "127.0.0.1", port, ssl=context, backlog=1024)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await ended.wait()
    server.close()


def _protocol(*, http2: bool) -> Callable[[Paths, RequestLog], asyncio.Protocol]:
    if not http2:
        return Connection
    from demo.receiver_http2 import ProtocolChooser  # the package h2 is a dependency of tests only

    return ProtocolChooser


def _context(certificate: Path, client_ca_certificates: Path | None, *, http2: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.set_alpn_protocols(["h2", "http/1.1"] if http2 else ["http/1.1"])
    if client_ca_certificates is not None:
        context.load_verify_locations(client_ca_certificates)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def main() -> None:
    """Serve until SIGTERM or SIGINT, or with `--with-parent` until standard input closes."""
    parser = argparse.ArgumentParser(prog="python -m demo.receiver")
    parser.add_argument("--port", type=int, default=0, help="0: any free port; the port is printed")
    parser.add_argument("--log", type=Path, required=True, help="the log: a JSON line for each request")
    parser.add_argument("--whole", action="store_true", help="log headers and bodies too")
    parser.add_argument("--certificate", type=Path, help="PEM file with key and certificate, to use TLS")
    parser.add_argument(
        "--client-ca-certificates", type=Path, help="PEM file of CA certificates; clients need a certificate from one"
    )
    parser.add_argument("--http2", action="store_true", help="offer HTTP/2 too")
    parser.add_argument("--with-parent", action="store_true", help="end when standard input closes")
    given = parser.parse_args()
    context = None
    if given.certificate is not None:
        context = _context(given.certificate, given.client_ca_certificates, http2=given.http2)
    asyncio.run(
        _serve(given.port, given.log, context, whole=given.whole, http2=given.http2, with_parent=given.with_parent)
    )


if __name__ == "__main__":
    main()
