"""The little of Airflow's REST API that the demo uses."""

from __future__ import annotations

from typing import Any

import httpx

from demo.places import USER, Places


class Airflow:
    """A client of the demo's Airflow, logged in as its user."""

    def __init__(self, places: Places) -> None:
        self._client = httpx.Client(base_url=places.url, timeout=30)
        body = {"username": USER, "password": places.password}
        token = self._client.post("/auth/token", json=body).raise_for_status().json()["access_token"]
        self._client.headers["Authorization"] = f"Bearer {token}"

    def call(self, method: str, path: str, **content: Any) -> Any:
        """Return the JSON of an answer; raises httpx.HTTPStatusError unless it is a success."""
        return self._client.request(method, f"/api/v2{path}", **content).raise_for_status().json()

    def import_errors(self) -> list[str]:
        """Return what Airflow's UI shows of DAG files that cannot be read."""
        return [error["stack_trace"] for error in self.call("GET", "/importErrors")["import_errors"]]

    def close(self) -> None:
        """Let go of connections."""
        self._client.close()
