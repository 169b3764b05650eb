"""An S3 server on the loopback address for tests and the demo: moto's, with injected failures.

    python -m eventbridge.testing.s3 --port PORT --bucket BUCKET [--journal FILE]     serves until it is stopped

It keeps everything in memory and accepts every key. With a journal, a restarted server has the same content.
"""

from __future__ import annotations

import argparse
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from eventbridge.testing.s3_journal import Journal

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
        """Whether S3 counts and bills it as a put: a file, a part, a copy."""
        return self.method == "PUT" or (self.method == "POST" and "delete" not in self.query)

    @property
    def is_listing(self) -> bool:
        """Whether it lists a bucket."""
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
        """Make a bucket."""
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
            from eventbridge.testing.s3_journal import Journal

            self._journal = Journal(self._journal_path)
            self._journal.open(self._application)
        self._server = make_server("127.0.0.1", self._port, self._response, threaded=True, request_handler=QuietHandler)
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, name="s3", daemon=True).start()

    def stop(self) -> None:
        """Stop it; harmless if it has stopped."""
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
            asker = escape(request.headers.get("HTTP_AUTHORIZATION", "nobody"))  # some servers tell whom they refuse
            text = f"<Error><Code>{code}</Code><Message>The server was told to say so to {asker}.</Message></Error>"
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
    """Make a bucket on the server on a port of 127.0.0.1, which knows the keys of the tests."""
    import boto3

    keys = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY, "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", **keys)
    client.create_bucket(Bucket=name)
    client.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until the process is stopped."""
    parser = argparse.ArgumentParser(prog="python -m eventbridge.testing.s3")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--bucket", required=True, type=_bucket)
    parser.add_argument("--journal", type=Path, help="keep in this file what is written, for the next start")
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
