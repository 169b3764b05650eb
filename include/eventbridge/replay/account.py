"""Accounts for a replay: the events that it read and took, and the outcomes of their deliveries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from eventbridge.errors import NotFoundError
from eventbridge.model.redelivery import Replay, Replayed, ReplayPosition
from eventbridge.pipeline.settle.settlement import settlements
from eventbridge.replay.archive import files_from
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.visibility import visibility_of

IN_PROGRESS = "in_progress"
PENDING = "pending"
PRUNED = "pruned"
_OPEN = ("retry_scheduled", "unknown")


@dataclass
class ReplayAccount:
    """The batches of a replay, the archive rows that it read, the events that it took, and the outcomes of their
    deliveries.

    `in_progress` counts the events, not the deliveries, of uncommitted batches and open deferred matches. `pending`
    deliveries will be retried. `pruned` counts the events of batches whose deliveries are past their retention.
    """

    batches: int = 0
    read: int = 0
    taken: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)


def account_of(runtime: Runtime, replay: Replay) -> ReplayAccount:
    """Return the current account of a replay, with its deliveries followed through their retries."""
    searched = runtime.ledger.replays.searched(replay.replay_id)
    found = ReplayAccount(
        read=sum(each.end_row - each.first_row for each in searched), taken=sum(each.count for each in searched)
    )
    counts: Counter[str] = Counter()
    for each in searched:
        if each.batch_id is not None:
            counts[each.batch_id] += each.count
    found.batches = len(counts)
    seen: set[str] = set()
    for batch_id, count in counts.items():
        batch = runtime.ledger.batches.get(batch_id)
        if batch.state != "committed":
            found.outcomes[IN_PROGRESS] += count
        elif batch.kept != "all":
            found.outcomes[PRUNED] += count
        else:
            _add(runtime, batch_id, found.outcomes, seen)
    return found


def events_to_read(runtime: Runtime, replay: Replay) -> int:
    """Return how many archived events a replay reads from its beginning to its end; each part reads its own."""
    parts = range(len(replay.parts))
    return sum(file.rows for part in parts for (file, _), _ in files_from(runtime, replay, ReplayPosition(part=part)))


def _add(runtime: Runtime, batch_id: str, outcomes: Counter[str], seen: set[str]) -> None:
    """Count the outcomes of a batch's deliveries, and of its deferred matches that were routed later."""
    if batch_id in seen:
        return
    seen.add(batch_id)
    open_ids: set[bytes] = set()
    for _, table in settlements(runtime, batch_id, ["delivery_id", "status"]):
        for name, status in zip(*(column.to_pylist() for column in table.columns), strict=True):
            if status in _OPEN:
                open_ids.add(name)
            else:
                outcomes[status] += 1
                open_ids.discard(name)
    outcomes.update(_outcomes_of_pending(runtime, batch_id, open_ids).values())
    for deferred_match in runtime.ledger.deferred_matches.list_for_batch(batch_id):
        if deferred_match.closed_by is None:
            outcomes[IN_PROGRESS] += deferred_match.count
        else:
            _add(runtime, deferred_match.closed_by, outcomes, seen)


def _outcomes_of_pending(runtime: Runtime, batch_id: str, open_ids: set[bytes]) -> dict[bytes, str]:
    """Return the outcomes of a batch's pending deliveries."""
    found = dict.fromkeys(open_ids, PENDING)
    if not open_ids:
        return found
    for other in sorted(
        {row.closed_by for row in runtime.ledger.pending.list_for_batch(batch_id) if row.closed_by is not None}
    ):
        still: set[bytes] = set()
        for _, table in settlements(runtime, other, ["delivery_id", "status"]):
            for name, status in zip(*(column.to_pylist() for column in table.columns), strict=True):
                if name in open_ids:
                    found[name] = PENDING if status in _OPEN else status
                    (still.add if status in _OPEN else still.discard)(name)
        found |= _outcomes_of_pending(runtime, other, still)
    return found


def coverage_differences(runtime: Runtime) -> Iterator[str]:
    """Yield a sentence for each archive file that a replay has passed, but not read completely and without overlaps."""
    for replay in runtime.ledger.replays.all():
        searched = runtime.ledger.replays.searched(replay.replay_id)
        reached = replay.position.part + bool(replay.position.file)
        for part in range(min(reached, len(replay.parts))):
            yield from _missed(runtime, replay, part, [each for each in searched if each.part == part])


def _missed(runtime: Runtime, replay: Replay, part: int, searched: list[Replayed]) -> Iterator[str]:
    spans: dict[str, list[tuple[int, int]]] = {}
    for each in searched:
        spans.setdefault(each.file, []).append((each.first_row, each.end_row))
    here = replay.position if replay.position.part == part else None
    found = [file for (file, _), _ in files_from(runtime, replay, ReplayPosition(part=part))]
    if here is not None and replay.ended_at is not None and all(file.path != here.file for file in found):
        return  # the ledger no longer has the file in which the replay ended, so the files before it are unknown
    for file in found:
        end = here.row if here is not None and here.file == file.path else file.rows
        reached = 0
        for first, last in sorted(spans.get(file.path, [])):
            if first != reached:
                break
            reached = last
        if reached != end:
            yield (
                f"replay {replay.replay_id}, part {part}: {file.path} must be searched up to row {end}, "
                f"but was searched only up to row {reached}"
            )
        if here is not None and here.file == file.path:
            return


@dataclass(frozen=True)
class ReplayProgress:
    """The number of archive rows that a replay has read and of events that it has taken, and the time that it has
    reached.

    `reached` is when the batch of its current archive file was planned, None at the start of a part.
    """

    replay: Replay
    read: int
    taken: int
    reached: datetime | None


def visible_replays(runtime: Runtime) -> list[Replay]:
    """Return the replays, newest first; callers who are limited to owners get those of rules that they may see."""
    visibility = visibility_of(runtime)
    return [each for each in runtime.ledger.replays.all() if visibility.all_rules(each.selection.get("rules", ()))]


def find_replay(runtime: Runtime, name: str) -> Replay:
    """Return the replay whose id begins with `name`. Raises NotFoundError if there is none, or several."""
    found = [each for each in visible_replays(runtime) if name and each.replay_id.startswith(name.lower())]
    if len(found) != 1:
        how_many = f"{len(found)} replays begin with" if found else "there is no replay"
        raise NotFoundError(f"{how_many} {name!r}. `eventbridge replays list` lists all replays.")
    return found[0]


def replay_document(runtime: Runtime, name: str) -> dict[str, Any]:
    """Return a replay as `eventbridge replays show --json` prints it. Raises the same errors as `find_replay`."""
    found = find_replay(runtime, name)
    return replay_fields(found, account_of(runtime, found))


def replay_fields(request: Replay, account: ReplayAccount) -> dict[str, Any]:
    """Return a replay, with its account, as a JSON object."""
    return {
        "replay_id": request.replay_id,
        "state": request.state,
        "bus": request.bus,
        "from": request.since,
        "to": request.until,
        "started_at": request.started_at,
        "ended_at": request.ended_at,
        "selection": dict(request.selection),
        "ids": "new" if request.new_ids else "same",
        "skip_delivered": request.skip_delivered,
        "rate": request.rate,
        "batches": account.batches,
        "read": account.read,
        "taken": account.taken,
        "outcomes": dict(sorted(account.outcomes.items())),
    }


def replay_line(runtime: Runtime, replay: Replay) -> dict[str, Any]:
    """Return a replay and its progress as a JSON object, without outcomes, for which its deliveries must be read."""
    account = ReplayAccount()
    fields = replay_fields(replay, account)
    found = replay_progress(runtime, replay)
    known = {"read": found.read, "taken": found.taken, "reached": found.reached}
    return {name: value for name, value in fields.items() if name not in ("batches", "outcomes")} | known


def replay_progress(runtime: Runtime, replay: Replay) -> ReplayProgress:
    """Return the progress of a replay."""
    searched = runtime.ledger.replays.searched(replay.replay_id)
    at = replay.position.at
    return ReplayProgress(
        replay,
        sum(each.end_row - each.first_row for each in searched),
        sum(each.count for each in searched),
        datetime.fromisoformat(at) if at else None,
    )
