"""What route asks of its workers and what they answer; travels as JSON.

Nothing here may import the ledger or Spark: a Spark worker imports this module and should be ready soon.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from eventbridge.rule import RuleSet
from eventbridge.store.protocol import Store


@dataclass(frozen=True)
class RouteJob:
    """What all slices of one batch share; travels to the workers as JSON.

    `attempt` is unique per try of the route stage; `replay_id` is part of every delivery id.
    """

    batch_id: str
    runner: str
    bus: str
    rule_set: str  # hash
    planned_at: datetime
    store_uri: str
    attempt: str
    event_max_bytes: int
    piece_max_deliveries: int
    piece_max_bytes: int
    replay_id: str = ""
    slice_seconds: float = 0.0  # a Spark worker that takes longer over one slice is ended; 0 = never
    costly_seconds: float = 0.0  # once a worker has spent so much on shares it begins no more; 0 = never (share_turns)

    def anew(self) -> RouteJob:
        """Return the job of another try: what it leaves in the store has names of its own."""
        return replace(self, attempt=uuid.uuid4().hex)

    def to_json(self) -> str:
        """Return the job as JSON text."""
        return json.dumps({**asdict(self), "planned_at": self.planned_at.isoformat()})

    @classmethod
    def from_json(cls, text: str) -> RouteJob:
        """Read what `to_json` wrote."""
        values = json.loads(text)
        return cls(**{**values, "planned_at": datetime.fromisoformat(values["planned_at"])})


@dataclass(frozen=True)
class Slice:
    """Rows `row_from` (included) to `row_to` (excluded) of one buffer file; `slice_id` is the same at every try.

    Sorted by their ids, as chunks are cut, the slices of a batch follow the order of queue and offset.
    """

    slice_id: str
    file: str
    row_from: int
    row_to: int


@dataclass(frozen=True)
class RuleShare:
    """What of a batch one costly rule has to route: rows of buffer files that its pattern let through, oldest first.

    At most `cpu_seconds` are spent on it. `last_resort`: an event that takes them all by itself fails.
    `give_up` (reason, text): every event fails so, unseen.
    Of a rule with Spark SQL `answers` is the file of what Spark made of its events, as far as it came (sql_answers);
    `hold` says why Spark can make nothing of the others: they are left, and the rule is held.
    """

    slice_id: str
    rule: str
    files: tuple[tuple[str, str], ...]  # (buffer file, encoded rows)
    cpu_seconds: float
    last_resort: bool = False
    give_up: tuple[str, str] | None = None
    answers: str | None = None
    hold: str = ""


#: What a worker is asked to do.
Task = Slice | RuleShare


def read_task(values: dict[str, Any]) -> Task:
    """Return the task that `dataclasses.asdict` took apart, after its way through JSON."""
    if "rule" not in values:
        return Slice(**values)
    files = tuple((file, rows) for file, rows in values["files"])
    return RuleShare(**values | {"files": files, "give_up": values["give_up"] and tuple(values["give_up"])})


@dataclass(frozen=True)
class SliceResult:
    """What became of a slice: the delivery file (None: nothing matched), its rows, and the manifest `detail`.

    `detail` is JSON: `slice` (file, row_from, row_to), `rows_in` (valid rows read), `matched` (fingerprint per
    "rule/target"), `failed` (count per "rule/target"), `failed_rows` (rows with a failure), `failure_reasons` (those of
    them that failed otherwise than as TransformFailed, by reason), `pieces`
    ([pool, weight, rule, target, rows, count, bytes], within the job's limits, failed rows in none; see route_pieces),
    `reference_matched` (events, and pairs of event and rule, that the reference matcher decided), `clears` (how often
    the matcher's table of classes was full and dropped), `reference_rendered` (deliveries that compiled code handed
    back to their renderers); `survivors`: what the patterns of costly rules let through, rows of the buffer file per
    rule. Of a share: `share`, see route_share; `error`: its rule is to be held.
    """

    slice_id: str
    path: str | None
    rows: int
    detail: Mapping[str, Any]


#: What routes one task: `route_task.route_task`, or what stands in for it.
RouteTask = Callable[[Store, RuleSet, RouteJob, Task], SliceResult]
