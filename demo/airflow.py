"""The little of Airflow's REST API that the demo uses."""

from __future__ import annotations

from typing import Any, Protocol

import httpx
from tenacity import retry, retry_if_exception, stop_after_delay, wait_fixed

from demo.places import USER

#: On SQLite a write that meets another one fails at once, whatever the time-out, and Airflow responds with 500.
_BUSY_SECONDS = 30.0


def _is_busy(error: BaseException) -> bool:
    return isinstance(error, httpx.HTTPStatusError) and error.response.is_server_error


class Door(Protocol):
    """Where an Airflow is, and the password of its user."""

    @property
    def url(self) -> str:
        """UI and REST API."""
        ...

    @property
    def password(self) -> str:
        """Of the user `admin`."""
        ...


class Airflow:
    """A client of an Airflow, logged in as its user."""

    def __init__(self, places: Door) -> None:
        self._client = httpx.Client(base_url=places.url, timeout=30)
        body = {"username": USER, "password": places.password}
        token = self._client.post("/auth/token", json=body).raise_for_status().json()["access_token"]
        self._client.headers["Authorization"] = f"Bearer {token}"

    @retry(retry=retry_if_exception(_is_busy), stop=stop_after_delay(_BUSY_SECONDS), wait=wait_fixed(0.3), reraise=True)
    def call(self, method: str, path: str, **content: Any) -> Any:
        """Return the JSON of a response, asked for again while Airflow's database is busy: every call may come twice.

        Raises httpx.HTTPStatusError unless it is a success.
        """
        return self._client.request(method, f"/api/v2{path}", **content).raise_for_status().json()

    def import_errors(self) -> list[str]:
        """Return what Airflow's UI shows of DAG files that cannot be read."""
        return [error["stack_trace"] for error in self.call("GET", "/importErrors")["import_errors"]]

    def close(self) -> None:
        """Let go of connections."""
        self._client.close()
