"""An S3 server on the loopback address for tests and the demo: moto's, with injected failures.

    python -m demo.s3_server --port PORT --bucket BUCKET [--journal FILE]     serves until it is stopped

It keeps everything in memory and accepts every key. With a journal, a restarted server has the same content.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote
from xml.sax.saxutils import escape

from werkzeug.wsgi import get_input_stream

Application = Callable[[dict[str, Any], Callable[..., Any]], Any]

#: Headers with conditions that held when the request was carried out, so the journal omits them.
_CONDITIONS = {"HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH"}


class Journal:
    """The journal of one server in one file; only one thread at a time may use it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def open(self, application: Application) -> None:
        """Replay the file on an empty server, and append to it; a truncated last line had no response."""
        whole = 0
        if self._path.exists():
            for line in self._lines():
                whole += len(line)
                _carried_out(application, *_request(json.loads(line)))
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
        os.ftruncate(self._descriptor, whole)
        os.lseek(self._descriptor, 0, os.SEEK_END)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def carry_out(self, application: Application, environ: dict[str, Any]) -> tuple[str, list[Any], bytes]:
        """Carry out a write, record it if it succeeds, and return status, headers and body of its response."""
        body = get_input_stream(environ).read()
        status, headers, response = _carried_out(application, environ, body)
        if status.startswith("2"):
            self._note(application, environ, body)
        return status, headers, response

    def _note(self, application: Application, environ: dict[str, Any], body: bytes) -> None:
        texts = {name: text for name, text in environ.items() if isinstance(text, str) and name not in _CONDITIONS}
        query = environ.get("QUERY_STRING", "")
        if "uploadId=" in query and environ["REQUEST_METHOD"] == "POST":
            texts |= {"REQUEST_METHOD": "GET", "QUERY_STRING": "", "CONTENT_LENGTH": "0"}
            _, headers, body = _carried_out(application, _environ(texts), b"")
            about = {_as_environ(name): text for name, text in headers if name.lower().startswith("x-amz-meta-")}
            texts |= about | {"REQUEST_METHOD": "PUT"}
        elif "uploadId=" in query or query.startswith("uploads"):
            return
        line = json.dumps({"environ": texts, "body": base64.b64encode(body).decode()}).encode() + b"\n"
        view = memoryview(line)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def _lines(self) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield line


def _carried_out(application: Application, environ: dict[str, Any], body: bytes) -> tuple[str, list[Any], bytes]:
    started: list[Any] = []

    def start_response(status: str, headers: list[Any], *_: object) -> None:
        started[:] = [status, headers]

    environ = environ | {"wsgi.input": BytesIO(body), "CONTENT_LENGTH": str(len(body))}
    environ.pop("HTTP_TRANSFER_ENCODING", None)  # the body is complete here
    environ.pop("wsgi.input_terminated", None)
    response = b"".join(application(environ, start_response))
    return started[0], started[1], response


def _request(line: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    return _environ(line["environ"]), base64.b64decode(line["body"])


def _environ(texts: dict[str, str]) -> dict[str, Any]:
    flags = {"wsgi.multithread": True, "wsgi.multiprocess": False, "wsgi.run_once": False}
    return {**texts, **flags, "wsgi.version": (1, 0), "wsgi.errors": sys.stderr}


def _as_environ(header: str) -> str:
    return "HTTP_" + header.upper().replace("-", "_")


ACCESS_KEY = "AKIA-of-tests"
SECRET_KEY = "secret/of+tests"

#: The errors that a server can be made to return, with their status.
_REFUSALS = {
    "SlowDown": "503 Slow Down",
    "InternalError": "500 Internal Server Error",
    "AccessDenied": "403 Forbidden",
    "InvalidAccessKeyId": "403 Forbidden",
    "SignatureDoesNotMatch": "403 Forbidden",
    "ConditionalRequestConflict": "409 Conflict",
}


@dataclass(frozen=True)
class S3Request:
    """A received request; `path` is `/bucket/key`."""

    method: str
    path: str
    query: str
    headers: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def is_put(self) -> bool:
        """Whether S3 counts and bills the request as a put: of a file, a part or a copy."""
        return self.method == "PUT" or (self.method == "POST" and "delete" not in self.query)

    @property
    def is_listing(self) -> bool:
        """Whether the request lists a bucket."""
        return self.method == "GET" and "list-type=2" in self.query


class S3Server:
    """A server that runs while the context is open; `requests` are those received.

    `refuse`, asked before each request, may return an error code such as SlowDown to respond with; `lose_response`
    returns whether a request is carried out and its response then lost. `application`, a thread-safe WSGI application,
    responds instead of moto.
    """

    def __init__(
        self, port: int = 0, journal: Path | None = None, application: Callable[..., Iterable[bytes]] | None = None
    ) -> None:
        self.requests: list[S3Request] = []
        self.refuse: Callable[[S3Request], str | None] = lambda request: None
        self.lose_response: Callable[[S3Request], bool] = lambda request: False
        self._port = port
        self._journal_path = journal
        self._journal: Journal | None = None
        self._server: Any = None
        self._application: Any = application
        # A real server serialises conditional writes; moto does not.
        self._writing: AbstractContextManager[object] = threading.Lock() if application is None else nullcontext()

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def connection(self) -> str:
        """The URI of a connection to it, for EVENTBRIDGE_CONN_<ID>."""
        return connection_uri(self._port)

    def make_bucket(self, name: str) -> None:
        """Create a bucket."""
        make_bucket(self._port, name)
        self.requests.clear()

    def start(self) -> None:
        """Serve in a new thread."""
        from werkzeug.serving import WSGIRequestHandler, make_server

        class QuietHandler(WSGIRequestHandler):
            def log(self, type: str, message: str, *args: Any) -> None:
                return

        if self._application is None:
            from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

            self._application = DomainDispatcherApplication(create_backend_app)
        if self._journal_path is not None:  # before the first request: an incomplete store would look damaged
            self._journal = Journal(self._journal_path)
            self._journal.open(self._application)
        self._server = make_server("127.0.0.1", self._port, self._response, threaded=True, request_handler=QuietHandler)
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, name="s3", daemon=True).start()

    def stop(self) -> None:
        """Stop the server; has no effect if it has stopped."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
        if self._journal is not None:
            self._journal.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _response(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        headers = {name: str(value) for name, value in environ.items() if name.startswith("HTTP_")}
        request = S3Request(environ["REQUEST_METHOD"], environ["PATH_INFO"], environ["QUERY_STRING"], headers)
        self.requests.append(request)
        code = self.refuse(request)
        if code is None and self.lose_response(request):
            with self._writing:
                b"".join(self._application(environ, lambda *response: None))
            code = "InternalError"
        if code is not None:
            start_response(_REFUSALS[code], [("Content-Type", "application/xml")])
            asker = escape(request.headers.get("HTTP_AUTHORIZATION", "nobody"))  # as some servers do
            text = f"<Error><Code>{code}</Code><Message>This test server refuses {asker} by request.</Message></Error>"
            return [] if request.method == "HEAD" else [f'<?xml version="1.0"?>{text}'.encode()]
        if request.method in ("GET", "HEAD"):
            return self._application(environ, start_response)  # type: ignore[no-any-return]
        with self._writing:
            if self._journal is None:
                return self._application(environ, start_response)  # type: ignore[no-any-return]
            status, responded, body = self._journal.carry_out(self._application, environ)
        start_response(status, responded)
        return [body]


def connection_uri(port: int) -> str:
    """Return the URI of a connection to the server on a port."""
    keys = f"{quote(ACCESS_KEY, safe='')}:{quote(SECRET_KEY, safe='')}"
    return f"aws://{keys}@/?region_name=us-east-1&endpoint_url={quote(f'http://127.0.0.1:{port}', safe='')}"


def make_bucket(port: int, name: str) -> None:
    """Create a bucket on the server on a port of 127.0.0.1, which accepts the keys of the tests."""
    import boto3

    keys = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY, "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", **keys)
    client.create_bucket(Bucket=name)
    client.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until the process is stopped."""
    parser = argparse.ArgumentParser(prog="python -m demo.s3_server")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--bucket", required=True, type=_bucket)
    parser.add_argument("--journal", type=Path, help="file that keeps the written objects for the next start")
    options = parser.parse_args(arguments)
    with S3Server(options.port, options.journal) as server:
        server.make_bucket(options.bucket)
        server.requests = _EmptyList()
        threading.Event().wait()


class _EmptyList(list[S3Request]):
    """A list that stays empty: a long-running server keeps no requests."""

    def append(self, item: S3Request) -> None:
        return


def _bucket(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a valid bucket name")
    return text


if __name__ == "__main__":
    main()
