"""Statements about archived events that are delivered again."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, Text, bindparam, case, exists, or_, select, type_coerce, update

from eventbridge.ledger.columns import JsonText, UtcTime
from eventbridge.ledger.definitions import word
from eventbridge.ledger.statements.inserts import insert, insert_or_skip
from eventbridge.ledger.tables import UNCOMMITTED, batch, batch_file, replay, replayed

_REPLAY = replay.c.replay_id == bindparam("of_replay")

#: Adds a replay, unless its run has one.
BEGIN_REPLAY = insert_or_skip(replay)

#: The replay of a run.
REPLAY_OF_RUN = select(replay).where(replay.c.run == bindparam("of_run"))

#: One replay.
REPLAY = select(replay).where(_REPLAY)

#: Whether a replay gives its deliveries ids of their own.
HAS_NEW_IDS = select(replay.c.new_ids).where(_REPLAY)

#: All replays, newest first.
REPLAYS = select(replay).order_by(replay.c.started_at.desc(), replay.c.replay_id)

#: Moves a running replay and sets when its next batch may be planned; changes nothing if another process was faster.
MOVE_REPLAY = (
    update(replay)
    .where(_REPLAY, replay.c.state == "running", replay.c.turn == bindparam("expected"))
    .values(
        turn=replay.c.turn + 1,
        position=bindparam("to", type_=JsonText),
        next_at=bindparam("at", type_=UtcTime),
    )
)

#: When a replay's next batch may be planned, or now if that has passed: a process attends to the replay.
_NOT_BEFORE = bindparam("now", type_=UtcTime)
_MINDED = case((replay.c.next_at < _NOT_BEFORE, _NOT_BEFORE), else_=replay.c.next_at)

#: Moves a replay that has not ended from one state to another.
SET_REPLAY_STATE = (
    update(replay)
    .where(_REPLAY, replay.c.state == bindparam("expected"))
    .values(state=bindparam("to"), next_at=_MINDED)
)

#: Resumes a paused replay, for another run.
HAND_OVER_REPLAY = (
    update(replay)
    .where(_REPLAY, replay.c.state == "paused")
    .values(state="running", run=bindparam("to_run"), next_at=_MINDED)
)

#: Defers the next batch of a replay.
POSTPONE_REPLAY = update(replay).where(_REPLAY).values(next_at=bindparam("at", type_=UtcTime))

#: Ends a replay that has not ended.
END_REPLAY = (
    update(replay)
    .where(_REPLAY, replay.c.state.in_(["running", "paused"]))
    .values(state=bindparam("to"), ended_at=bindparam("now", type_=UtcTime))
)

#: Records the rows that were searched, and those of them that were taken.
TAKE_EVENTS = insert(replayed)

_IN_ORDER = (replayed.c.turn, replayed.c.part, replayed.c.file)

#: The rows that a replay has searched.
REPLAYED = select(replayed).where(replayed.c.replay_id == bindparam("of_replay")).order_by(*_IN_ORDER)

#: The rows of one file that a replay has searched.
REPLAYED_OF = REPLAYED.where(replayed.c.file == bindparam("of_file"))

#: The rows that a batch took.
REPLAYED_BY = select(replayed).where(replayed.c.batch_id == bindparam("of_batch")).order_by(*_IN_ORDER)

#: The uncommitted batches of a replay.
OPEN_REPLAY_BATCHES = select(batch).where(
    UNCOMMITTED, batch.c.kind == "replay", batch.c.replay_id == bindparam("of_replay")
)

#: The replays that no process has attended to since a time: they run, or have a batch that is not routed; the longest
#: unattended first.
LEFT_REPLAYS = (
    select(replay)
    .where(
        replay.c.next_at < bindparam("before", type_=UtcTime),
        or_(
            replay.c.state == "running",
            exists().where(
                UNCOMMITTED,
                batch.c.kind == "replay",
                batch.c.state == "buffered",
                batch.c.replay_id == replay.c.replay_id,
            ),
        ),
    )
    .order_by(replay.c.next_at, replay.c.replay_id)
)

#: The condition for committed normal batches of a bus that were planned in a period and committed before a time.
_ARCHIVED = (
    (batch.c.kind == word("normal"))
    & (batch.c.bus == bindparam("of_bus"))
    & (batch.c.planned_at >= bindparam("since", type_=UtcTime))
    & (batch.c.planned_at < bindparam("until", type_=UtcTime))
    & (batch.c.committed_at < bindparam("before", type_=UtcTime))
    & batch.c.kept.in_(["all", "archive"])
)

#: The runners that landed events of a bus within a time, with the rule sets that their batches are pinned to.
ARCHIVE_RULE_SETS = (
    select(batch.c.runner, batch.c.rule_set).where(_ARCHIVED).distinct().order_by(batch.c.runner, batch.c.rule_set)
)


def archive_files(runner: str | None, limit: int | None) -> Select[Any]:
    """Return the query for files of the archive, in order of time; `runner` None: of all that landed the bus."""
    found = (
        select(
            batch.c.batch_id,
            batch.c.runner,
            batch.c.rule_set,
            batch.c.planned_at,
            batch_file.c.key,
            batch_file.c.path,
            batch_file.c.rows,
            type_coerce(batch_file.c.detail, Text).label("detail"),
        )
        .select_from(batch)
        .join(batch_file, (batch_file.c.batch_id == batch.c.batch_id) & (batch_file.c.kind == word("buffer")))
        .where(_ARCHIVED, batch_file.c.path.is_not(None), batch_file.c.rows > 0)
        .order_by(batch.c.planned_at, batch.c.batch_id, batch_file.c.key)
        .limit(limit)
    )
    return found if runner is None else found.where(batch.c.runner == runner)
