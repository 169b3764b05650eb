"""A client of Airflow's REST API, for what a task cannot do itself: list and create pools, and write the note of its
run.

It logs in with the connection `eventbridge_airflow`: host, port, login and password.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, ClassVar, Self

import httpx

from eventbridge.config.connection import Connection
from eventbridge.errors import InfrastructureError

CONNECTION_ID = "eventbridge_airflow"


class AirflowError(InfrastructureError):
    """Airflow's REST API cannot be reached, or refuses the request."""


class AirflowConflict(AirflowError):
    """The object to create already exists."""


class AirflowApi:
    """A client of Airflow's REST API. Its opener closes it."""

    #: What the connection's account must be allowed to do; part of an error message.
    needs: ClassVar[str] = ""

    def __init__(self, connection: Connection, timeout_seconds: float = 5.0) -> None:
        scheme = connection.schema or "http"
        port = f":{connection.port}" if connection.port else ""
        self._login = {"username": connection.login, "password": connection.password}
        self._client = httpx.Client(base_url=f"{scheme}://{connection.host}{port}", timeout=timeout_seconds)
        self._token = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def call(self, method: str, path: str, **content: Any) -> Any:
        """Return the JSON of a response; raises AirflowError, and AirflowConflict for 409."""
        if not self._token:
            self._token = self._send("POST", "/auth/token", json=self._login)["access_token"]
        return self._send(method, path, headers={"Authorization": f"Bearer {self._token}"}, **content)

    def _send(self, method: str, path: str, **content: Any) -> Any:
        where = f"{method} {self._client.base_url}{path}"
        try:
            response = self._client.request(method, path, **content)
        except httpx.HTTPError as error:
            raise AirflowError(f"{where}: {error}. Check the connection {CONNECTION_ID!r}") from error
        if response.status_code == httpx.codes.CONFLICT:
            raise AirflowConflict(f"{where}: it already exists")
        if not response.is_success:
            raise AirflowError(
                f"{where}: the response was {response.status_code} {response.text[:200]}. "
                f"The account of the connection {CONNECTION_ID!r} must be able to {self.needs}"
            )
        return response.json()
