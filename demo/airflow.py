"""A client of the part of Airflow's REST API that the demo uses."""

from __future__ import annotations

from typing import Any, Protocol

import httpx
from tenacity import retry, retry_if_exception, stop_after_delay, wait_fixed

from demo.config import USER

#: On SQLite two concurrent writes can fail immediately, whatever the time-out, and Airflow responds with 500.
_BUSY_SECONDS = 30.0


def _is_busy(error: BaseException) -> bool:
    return isinstance(error, httpx.HTTPStatusError) and error.response.is_server_error


class AirflowAddress(Protocol):
    """The URL of an Airflow, and the password of its user."""

    @property
    def url(self) -> str:
        """The URL of UI and REST API."""
        ...

    @property
    def password(self) -> str:
        """The password of the user `admin`."""
        ...


class Airflow:
    """A client of an Airflow, logged in as `admin`."""

    def __init__(self, config: AirflowAddress) -> None:
        self._client = httpx.Client(base_url=config.url, timeout=30)
        body = {"username": USER, "password": config.password}
        token = self._client.post("/auth/token", json=body).raise_for_status().json()["access_token"]
        self._client.headers["Authorization"] = f"Bearer {token}"

    @retry(retry=retry_if_exception(_is_busy), stop=stop_after_delay(_BUSY_SECONDS), wait=wait_fixed(0.3), reraise=True)
    def call(self, method: str, path: str, **content: Any) -> Any:
        """Return the JSON of a response. It repeats the request while Airflow's database is busy, so a call may be made
        twice.

        Raises httpx.HTTPStatusError for an error status.
        """
        return self._client.request(method, f"/api/v2{path}", **content).raise_for_status().json()

    def import_errors(self) -> list[str]:
        """Return the import errors of DAG files that Airflow's UI shows."""
        return [error["stack_trace"] for error in self.call("GET", "/importErrors")["import_errors"]]

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
