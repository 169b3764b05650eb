"""A client of Airflow's REST API, for what a task cannot do by itself: see and make pools, write the note of its run.

It logs in with the connection `eventbridge_airflow`: host, port, login and password of an account.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, ClassVar, Self

import httpx

from eventbridge.config.connection import Connection
from eventbridge.errors import InfrastructureError

CONNECTION_ID = "eventbridge_airflow"


class AirflowError(InfrastructureError):
    """Airflow's REST API cannot be reached or refuses."""


class AirflowConflict(AirflowError):
    """What was to be made exists already."""


class AirflowApi:
    """A client of Airflow's REST API; closed by its opener."""

    #: What the connection's account must be allowed to do, for an error.
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
        """Let go of connections."""
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
            raise AirflowConflict(f"{where}: exists already")
        if not response.is_success:
            raise AirflowError(
                f"{where}: responded with {response.status_code} {response.text[:200]}. "
                f"The account of the connection {CONNECTION_ID!r} must be able to {self.needs}"
            )
        return response.json()
