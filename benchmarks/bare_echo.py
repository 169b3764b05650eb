"""A FastAPI application that only echoes requests, the baseline of `bench_api`.

`python -m benchmarks.bare_echo` prints its URL and serves until it is stopped.
"""

from __future__ import annotations

import socket
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response

app = FastAPI()


@app.post("/raw")
async def raw(request: Request) -> Response:
    """Respond with the body, unread."""
    return Response(await request.body(), media_type="application/json")


@app.post("/json")
async def parsed(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Respond with the events, read and written by FastAPI."""
    return events


def main() -> None:
    """Serve on a free port of 127.0.0.1."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)  # noqa: T201
        uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run([listener])


if __name__ == "__main__":
    main()
