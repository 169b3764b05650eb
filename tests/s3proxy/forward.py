"""Passes every request on to a real S3 server as it came, so that a test can count and disturb what it gets.

Signatures cover method, path, query, host and body: the server sees all of them as the client signed them.
"""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from werkzeug.wsgi import get_input_stream

#: Said of one connection, and not of what travels on it. Of a body that is whole here, its length is said instead.
_OF_ONE_CONNECTION = {"connection", "expect", "keep-alive", "transfer-encoding", "content-length"}
_TIMEOUT_SECONDS = 60.0


class Forward:
    """The WSGI application; what it responds with is what the server on `port` of 127.0.0.1 does."""

    def __init__(self, port: int) -> None:
        self._port = port

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        """Ask the server."""
        body = get_input_stream(environ).read()
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_TIMEOUT_SECONDS)
        try:
            connection.putrequest(
                environ["REQUEST_METHOD"], environ["REQUEST_URI"], skip_host=True, skip_accept_encoding=True
            )
            for name, text in _headers(environ):
                connection.putheader(name, text)
            if body or environ["REQUEST_METHOD"] in ("PUT", "POST"):
                connection.putheader("Content-Length", str(len(body)))
            with suppress(ConnectionError):  # versitygw refuses before it has the body, and reads no further
                connection.endheaders(body)
            response = connection.getresponse()
            text = response.read()
            headers = [pair for pair in response.getheaders() if pair[0].lower() not in _OF_ONE_CONNECTION]
            length = response.getheader("Content-Length") if environ["REQUEST_METHOD"] == "HEAD" else str(len(text))
            headers += [("Content-Length", length)] if length is not None else []
            start_response(f"{response.status} {response.reason}", headers)
            return [text]
        except ConnectionError:  # werkzeug would say nothing, and continue with the next request of the connection
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise
        finally:
            connection.close()


def _headers(environ: dict[str, Any]) -> list[tuple[str, str]]:
    found = {name.removeprefix("HTTP_"): text for name, text in environ.items() if name.startswith("HTTP_")}
    if environ.get("CONTENT_TYPE"):
        found["CONTENT_TYPE"] = environ["CONTENT_TYPE"]
    named = {name.replace("_", "-").lower(): text for name, text in found.items()}
    return [(name, text) for name, text in named.items() if name not in _OF_ONE_CONNECTION]
