"""A client of Airflow's REST API, which tasks need to manage pools and to write a run's note."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime
from types import TracebackType
from typing import Any, ClassVar, Self
from urllib.parse import quote

import httpx

from eventbridge.airflow.connections import airflow_connection
from eventbridge.config.connection import Connection
from eventbridge.errors import ConnectionUnusable, InfrastructureError

log = logging.getLogger(__name__)

CONNECTION_ID = "eventbridge_airflow"


class AirflowError(InfrastructureError):
    """Airflow's REST API cannot be reached, or refuses the request."""


class AirflowConflict(AirflowError):
    """The object to create already exists."""


class AirflowApi:
    """A client of Airflow's REST API; the caller closes it."""

    #: The permissions that the connection's account needs, as part of an error message.
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
        """Return the JSON of a response. Raises AirflowConflict for status 409, and AirflowError for other errors."""
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


#: The number of asset events in a response.
_PAGE = 100

#: The prefix of EventBridge's line in a note. Lines that a user wrote are not changed.
_NOTE_PREFIX = "EventBridge: "
#: Airflow's limit for a note, in characters.
_MAX_NOTE_LENGTH = 1_000


class AirflowNotes(AirflowApi):
    """A client of Airflow's REST API for the notes of runs; the caller closes it.

    A task of Airflow 3.3 cannot write a note itself (apache/airflow 64890).
    """

    needs = "read and edit runs of EventBridge's DAGs"

    def write(self, dag_id: str, run_id: str, text: str) -> None:
        """Write a line into the note of a run, in place of EventBridge's earlier line. Raises AirflowError."""
        path = f"/api/v2/dags/{quote(dag_id, safe='')}/dagRuns/{quote(run_id, safe='')}"
        note = noted(self.call("GET", path)["note"] or "", text)
        self.call("PATCH", path, params={"update_mask": ["note"]}, json={"note": note})


class AirflowAssetEvents(AirflowApi):
    """A client of Airflow's REST API for asset events; the caller closes it."""

    needs = "read assets and DAGs"

    def newest(self) -> list[dict[str, Any]]:
        """Return the newest asset events, the newest first. Raises AirflowError."""
        newest = {"order_by": "-timestamp", "limit": _PAGE, "offset": 0}
        found: list[dict[str, Any]] = self.call("GET", "/api/v2/assets/events", params=newest)["asset_events"]
        return found

    def queued_dags(self, asset_id: int) -> set[str]:
        """Return the DAGs that the scheduler is going to run for an asset. Raises AirflowError."""
        found = self.call("GET", f"/api/v2/assets/{asset_id}/queuedEvents")["queued_events"]
        return {each["dag_id"] for each in found}

    def waiting_dags(self, asset_id: int) -> set[str]:
        """Return the DAGs that an asset starts, without the paused ones. Raises AirflowError."""
        dags = {each["dag_id"] for each in self.call("GET", f"/api/v2/assets/{asset_id}")["scheduled_dags"]}
        return {each for each in dags if not self.call("GET", f"/api/v2/dags/{quote(each, safe='')}")["is_paused"]}

    def between(self, since: datetime, until: datetime) -> Iterator[dict[str, Any]]:
        """Yield the asset events that Airflow recorded in a time range, the oldest first. Raises AirflowError."""
        offset = 0
        times = {"timestamp_gte": since.isoformat(), "timestamp_lte": until.isoformat(), "order_by": "timestamp"}
        while True:
            page = self.call("GET", "/api/v2/assets/events", params={**times, "limit": _PAGE, "offset": offset})
            yield from page["asset_events"]
            offset += _PAGE
            if offset >= page["total_entries"]:
                return


def noted(note: str, text: str) -> str:
    """Return a note with EventBridge's line as its last line, truncated if needed, or unchanged if it is full."""
    theirs = [line for line in note.splitlines() if not line.startswith(_NOTE_PREFIX)]
    available = _MAX_NOTE_LENGTH - len(_NOTE_PREFIX) - sum(len(line) + 1 for line in theirs)
    if available < 4:  # the user's own lines fill the note
        return note
    ours = text if len(text) <= available else f"{text[: available - 3]}..."
    return "\n".join([*theirs, f"{_NOTE_PREFIX}{ours}"])


def note_run(context: Any, text: str) -> None:
    """Write `text` into the run's note. An error is logged, and the task still succeeds."""
    dag_run = context["dag_run"]
    try:
        with AirflowNotes(airflow_connection(CONNECTION_ID)) as notes:
            notes.write(dag_run.dag_id, dag_run.run_id, text)
    except (AirflowError, ConnectionUnusable) as error:
        log.warning("cannot write the note of the run: %s", error)
