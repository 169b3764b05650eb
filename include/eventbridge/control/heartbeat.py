"""Sends a heartbeat, an event that reports the health of the installation, to a URL.

A scheduler calls this module every minute.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from http.client import HTTPException
from urllib.error import HTTPError, URLError

from eventbridge.config.connection import HTTP_TYPES, require_type
from eventbridge.errors import InfrastructureError, UserError
from eventbridge.model.stat import Family
from eventbridge.runtime.runtime import Runtime
from eventbridge.views.metrics import metrics

_PREFIX = "eventbridge_"
#: A receiver that takes longer counts as unreachable. The next heartbeat follows a minute later.
_TIMEOUT_SECONDS = 10.0
_SCHEMES = ("https://", "http://")

#: The time after which a runner with events that commits nothing counts as stalled, and an uncommitted batch as stuck.
#: The alerts in docs/howto/monitoring/alerts.yaml fire after the same times.
STALLED_SECONDS = 1_200.0
STUCK_SECONDS = 1_800.0


@dataclass(frozen=True)
class Heartbeat:
    """The state of an installation.

    `lag` is the lag of each runner whose bus responds. `problems` has a sentence for each problem.
    """

    at: datetime
    lag: Mapping[str, int]
    pending: int
    targets_not_ok: int
    reconciliation_difference: int
    problems: tuple[str, ...]

    def body(self) -> bytes:
        """Return the CloudEvent in structured mode, as JSON. Its id is its time, truncated to the minute."""
        data = {
            "healthy": not self.problems,
            "problems": list(self.problems),
            "lag": dict(self.lag),
            "pending": self.pending,
            "targets_not_ok": self.targets_not_ok,
            "reconciliation_difference": self.reconciliation_difference,
        }
        event = {
            "specversion": "1.0",
            "id": f"{self.at:%Y-%m-%dT%H:%MZ}",
            "source": "/eventbridge",
            "type": "eventbridge.heartbeat",
            "time": self.at.isoformat(),
            "datacontenttype": "application/json",
            "data": data,
        }
        return json.dumps(event).encode()


def current_heartbeat(runtime: Runtime) -> Heartbeat:
    """Return the current state of the installation."""
    return _heartbeat(runtime.clock(), {family.name.removeprefix(_PREFIX): family for family in metrics(runtime)})


def send_to_connection(runtime: Runtime, connection: str) -> Heartbeat:
    """Send a heartbeat to the URL in a connection, and return the heartbeat.

    Raises UserError if the connection has the wrong type or no usable URL, and the errors of `send_to_url`.
    The connection's extra has `secret_url`. It may also have `failure_url`, to which heartbeats with problems are sent
    instead. No message shows either URL.
    """
    found = runtime.connections(connection)
    require_type(found, HTTP_TYPES, "a heartbeat")
    extra = found.extra
    now = current_heartbeat(runtime)
    member = "failure_url" if now.problems and "failure_url" in extra else "secret_url"
    url = extra.get(member)
    if not isinstance(url, str) or not url.startswith(_SCHEMES):
        raise UserError(
            f"The field Extra of connection {connection!r} has no valid URL under {member!r}. "
            f'Write {{"{member}": "https://..."}} there'
        )
    send_to_url(url, now)
    return now


def send_to_url(url: str, heartbeat: Heartbeat) -> None:
    """Send a heartbeat to a URL.

    Raises UserError if the URL does not begin with https:// or http://, and InfrastructureError if the heartbeat cannot
    be sent or is not accepted.
    """
    if not url.startswith(_SCHEMES):
        raise UserError(f"{url!r} is not a heartbeat URL. Write https://...")
    headers = {"content-type": "application/cloudevents+json", "user-agent": "eventbridge"}
    try:
        request = urllib.request.Request(url, heartbeat.body(), headers, method="POST")
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
            response.read(1)
    except HTTPError as error:
        error.close()  # the error is also the response
        raise InfrastructureError(
            f"the heartbeat service responded with {error.code} {error.reason}. Check that service"
        ) from None
    except (URLError, HTTPException, OSError, ValueError) as error:
        # Of any other error, only the class name is shown, because its text may contain the URL.
        reason = error.reason if isinstance(error, URLError) else type(error).__name__
        raise InfrastructureError(
            f"the heartbeat service did not accept the event: {reason}. Check that service"
        ) from None


def _heartbeat(at: datetime, families: Mapping[str, Family]) -> Heartbeat:
    difference = int(_sum(families["reconciliation_difference"]))
    down = [sample.labels[0] for sample in families["bus_up"].samples if not sample.value]
    problems = [f"the bus {bus} does not respond" for bus in down]
    if difference:
        problems.insert(0, f"the reconciliation failed: expected and recorded deliveries differ by {difference}")
    if _sum(families["ingestion_stopped"]):
        problems.append("ingestion is stopped: free disk space is too low, or the store is at its quota")
    problems += stalled_work(at, families)
    return Heartbeat(
        at=at,
        lag={sample.labels[0]: int(sample.value) for sample in families["lag_events"].samples},
        pending=int(_sum(families["pending_deliveries"])),
        targets_not_ok=int(sum(s.value for s in families["targets"].samples if s.labels[0] != "paused")),
        reconciliation_difference=difference,
        problems=tuple(problems),
    )


def stalled_work(at: datetime, families: Mapping[str, Family]) -> list[str]:
    """Return a sentence for each runner that is stalled although it has events, and for each batch that is stuck."""
    lag = {sample.labels: sample.value for sample in families["lag_events"].samples}
    stalled = [
        f"the runner {sample.labels[0]} has committed nothing for {_minutes(age)} minutes, and events are waiting"
        for sample in families["runner_moved_timestamp_seconds"].samples
        if (age := at.timestamp() - sample.value) > STALLED_SECONDS and lag.get(sample.labels)
    ]
    stuck = [
        f"a {kind} batch{f' of the runner {runner}' if runner else ''} "
        f"has not been committed for {_minutes(sample.value)} minutes"
        for sample in families["open_batch_age_seconds"].samples
        if sample.value > STUCK_SECONDS
        for runner, kind in [sample.labels]  # in Airflow, retry batches belong to no runner
    ]
    return stalled + stuck


def _minutes(seconds: float) -> int:
    return int(seconds // 60)


def _sum(family: Family) -> float:
    values: Sequence[float] = [sample.value for sample in family.samples]
    return sum(values)
