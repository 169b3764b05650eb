"""A heartbeat: one event that says how the installation stands, sent to a URL by whoever calls each minute."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from http.client import HTTPException
from urllib.error import HTTPError, URLError

from eventbridge.errors import InfrastructureError, UserError
from eventbridge.model.metric import Family
from eventbridge.stages.operate.metrics import metrics
from eventbridge.stages.runtime.runtime import Runtime

_PREFIX = "eventbridge_"
_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class Heartbeat:
    """How an installation stands at a minute; `lag` by runner, those whose bus answers. `trouble`: what is wrong."""

    at: datetime
    lag: Mapping[str, int]
    parked: int
    targets_not_ok: int
    books_difference: int
    trouble: tuple[str, ...]

    def body(self) -> bytes:
        """Return the CloudEvent in structured JSON; its id is that of the minute."""
        data = {
            "healthy": not self.trouble,
            "trouble": list(self.trouble),
            "lag": dict(self.lag),
            "parked": self.parked,
            "targets_not_ok": self.targets_not_ok,
            "books_difference": self.books_difference,
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


def heartbeat(work: Runtime) -> Heartbeat:
    """Return how the installation stands now."""
    return _heartbeat(work.clock(), {family.name.removeprefix(_PREFIX): family for family in metrics(work)})


def send_heartbeat(url: str, beat: Heartbeat) -> None:
    """Send a heartbeat to a URL; raises UserError for one that is none, InfrastructureError if it is not taken."""
    if not url.startswith(("https://", "http://")):
        raise UserError(f"{url!r} is not an address for a heartbeat. Write https://...")
    headers = {"content-type": "application/cloudevents+json", "user-agent": "eventbridge"}
    try:
        request = urllib.request.Request(url, beat.body(), headers, method="POST")
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
            answer.read(1)
    except HTTPError as error:
        error.close()  # it is the answer, too
        raise InfrastructureError(
            f"the address of the heartbeat answered {error.code} {error.reason}. Look at that service"
        ) from None
    except (URLError, HTTPException, OSError, ValueError) as error:
        raise InfrastructureError(
            f"the heartbeat was not taken by its address: {error}. Look at that service"
        ) from None


def _heartbeat(at: datetime, families: Mapping[str, Family]) -> Heartbeat:
    difference = int(_sum(families["books_difference"]))
    down = [sample.labels[0] for sample in families["bus_up"].samples if not sample.value]
    trouble = [f"the bus {bus} does not answer" for bus in down]
    if difference:
        trouble.insert(0, f"the books do not balance: {difference} deliveries are neither ended nor parked")
    if _sum(families["intake_stopped"]):
        trouble.append("no new events are taken: the store has no room")
    return Heartbeat(
        at=at,
        lag={sample.labels[0]: int(sample.value) for sample in families["lag_events"].samples},
        parked=int(_sum(families["parked_deliveries"])),
        targets_not_ok=int(_sum(families["targets"])),
        books_difference=difference,
        trouble=tuple(trouble),
    )


def _sum(family: Family) -> float:
    values: Sequence[float] = [sample.value for sample in family.samples]
    return sum(values)
