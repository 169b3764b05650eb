"""The progress of replays: a list from the ledger alone, and one replay with the outcomes of its deliveries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from eventbridge.errors import NotFoundError
from eventbridge.model.redelivery import Replay
from eventbridge.replay.account import ReplayAccount, account_of
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.visibility import visibility_of


@dataclass(frozen=True)
class ReplayProgress:
    """A replay: archive rows that it read, events that it took, and the time it has reached; None: no file yet."""

    replay: Replay
    looked_at: int
    taken: int
    reached: datetime | None


def seen_replays(runtime: Runtime) -> list[Replay]:
    """Return the replays, newest first; callers who are limited to owners get those of rules that they may see."""
    visibility = visibility_of(runtime)
    return [each for each in runtime.ledger.replays() if visibility.all_rules(each.selection.get("rules", ()))]


def find_replay(runtime: Runtime, name: str) -> Replay:
    """Return the replay whose id begins with `name`; raises NotFoundError if there is none, or several."""
    found = [each for each in seen_replays(runtime) if name and each.replay_id.startswith(name.lower())]
    if len(found) != 1:
        how_many = f"{len(found)} replays begin with" if found else "there is no replay"
        raise NotFoundError(f"{how_many} {name!r}. `eventbridge replay list` lists them.")
    return found[0]


def replay_document(runtime: Runtime, name: str) -> dict[str, Any]:
    """Return a replay as `eventbridge replay show --json` prints it; raises NotFoundError."""
    found = find_replay(runtime, name)
    return replay_fields(found, account_of(runtime, found))


def replay_fields(request: Replay, account: ReplayAccount) -> dict[str, Any]:
    """Return a replay and the outcomes of its deliveries, for people and programs."""
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
        "looked_at": account.looked_at,
        "taken": account.taken,
        "outcomes": dict(sorted(account.outcomes.items())),
    }


def replay_line(runtime: Runtime, replay: Replay) -> dict[str, Any]:
    """Return a replay and its progress, without outcomes, which would require reading its deliveries."""
    account = ReplayAccount()
    fields = replay_fields(replay, account)
    found = replay_progress(runtime, replay)
    known = {"looked_at": found.looked_at, "taken": found.taken, "reached": found.reached}
    return {name: value for name, value in fields.items() if name not in ("batches", "outcomes")} | known


def replay_progress(runtime: Runtime, replay: Replay) -> ReplayProgress:
    """Return the progress of a replay."""
    looked = runtime.ledger.replayed(replay.replay_id)
    at = replay.position.at
    return ReplayProgress(
        replay,
        sum(each.end_row - each.first_row for each in looked),
        sum(each.count for each in looked),
        datetime.fromisoformat(at) if at else None,
    )
