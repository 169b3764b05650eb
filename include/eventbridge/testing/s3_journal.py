"""A journal of the writes to an S3 server of tests, so that a killed and restarted server keeps its content.

Written by `eventbridge.testing.s3`: a line for each request that changed something, before its response is sent. A
multipart upload is one line, once complete; parts of an incomplete one are lost with the process.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

from werkzeug.wsgi import get_input_stream

Application = Callable[[dict[str, Any], Callable[..., Any]], Any]

#: Conditions that held when the request was carried out, and are not checked again.
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
