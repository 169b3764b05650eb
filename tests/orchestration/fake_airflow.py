"""A fake of Airflow's API for pools and asset events, for tests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from eventbridge.config.connection import Connection


class FakeAirflow(ThreadingHTTPServer):
    """Pools in memory, by Airflow's paths, at most 100 per page. Pools in `raced` exist by the time they are
    created.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pools: dict[str, dict[str, Any]] = {}
        self.raced: set[str] = set()
        self.asset_events: list[dict[str, Any]] = []
        self.dags: dict[str, bool] = {}  # those that the asset 7 starts, and whether they are paused
        self.queued: list[str] = []
        self.requests: list[tuple[str, str]] = []
        self.add("default_pool", 128)

    def add(self, name: str, slots: int, free: int | None = None) -> dict[str, Any]:
        """Create a pool."""
        self.pools[name] = {"name": name, "slots": slots, "open_slots": slots if free is None else free}
        return self.pools[name]

    def connection(self, password: str = "right") -> Connection:
        """Return the connection to this server."""
        return Connection("eventbridge_airflow", "http", "127.0.0.1", self.server_port, "admin", password, "http")


class _Handler(BaseHTTPRequestHandler):
    server: FakeAirflow

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_PATCH(self) -> None:
        self._serve("PATCH")

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def _serve(self, method: str) -> None:
        url = urlsplit(self.path)
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        self.server.requests.append((method, url.path))
        status, response = self._response(method, url.path, parse_qs(url.query), body)
        text = json.dumps(response).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _response(self, method: str, path: str, query: dict[str, list[str]], body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/auth/token":
            right = body == {"username": "admin", "password": "right"}
            return (201, {"access_token": "token"}) if right else (401, {"detail": "Invalid credentials"})
        if self.headers.get("Authorization") != "Bearer token":
            return 401, {"detail": "no token"}
        pools = self.server.pools
        if path.startswith(("/api/v2/assets/", "/api/v2/dags/")):
            return 200, self._asset_response(path, query)
        if method == "GET" and path == "/api/v2/pools":
            offset, limit = int(query["offset"][0]), min(100, int(query["limit"][0]))
            return 200, {"pools": list(pools.values())[offset : offset + limit], "total_entries": len(pools)}
        if method == "PATCH":
            assert query == {"update_mask": ["slots"]}
            return 200, self.server.add(unquote(path.rpartition("/")[2]), body["slots"])
        if method == "GET":
            return 200, pools[unquote(path.rpartition("/")[2])]
        if body["name"] in self.server.raced:
            self.server.add(body["name"], 99)
        if body["name"] in pools:
            return 409, {"detail": "exists"}
        return 201, self.server.add(body["name"], body["slots"])

    def _asset_response(self, path: str, query: dict[str, list[str]]) -> Any:
        if path == "/api/v2/assets/events":
            offset, limit = int(query["offset"][0]), min(100, int(query["limit"][0]))
            found = self.server.asset_events[:: -1 if query["order_by"] == ["-timestamp"] else 1]
            return {"asset_events": found[offset : offset + limit], "total_entries": len(found)}
        if path == "/api/v2/assets/7/queuedEvents":
            return {"queued_events": [{"dag_id": each} for each in self.server.queued]}
        if path == "/api/v2/assets/7":
            return {"scheduled_dags": [{"dag_id": each} for each in self.server.dags]}
        return {"is_paused": self.server.dags[path.rpartition("/")[2]]}


@contextmanager
def serving() -> Iterator[FakeAirflow]:
    """Serve the fake within the block."""
    with FakeAirflow() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
