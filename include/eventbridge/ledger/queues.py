"""Stores the deliveries of queues, which consumers receive, extend, release and acknowledge.

A delivery is in a queue and pending in the books at the same time: the row here says what consumers did with it, and a
later batch settles it (`delivery.by_queue`). `batch_id` is the last batch that pushed the delivery, so its pending row
belongs to that batch. A row stays for an hour after its delivery is settled, so that a repeated acknowledgement of it
has the same result.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa

from eventbridge.ledger.batches import batch
from eventbridge.ledger.database import Aggregate
from eventbridge.ledger.definitions import (
    NOW,
    NUMBERED,
    JsonText,
    Message,
    RowId,
    UtcTime,
    insert_or_skip,
    metadata,
    microseconds,
    one_of,
    partial,
    word,
)
from eventbridge.ledger.pending import SCHEDULED, WAITING, pending
from eventbridge.ledger.revision import TAKE_TURN
from eventbridge.model.queue import (
    AttemptEnd,
    EndedAttempt,
    QueueCount,
    QueuedDelivery,
    QueueEntry,
    QueueState,
    ReceivedDelivery,
)

queue_delivery = sa.Table(
    "queue_delivery",
    metadata,
    sa.Column("number", RowId, primary_key=True),
    sa.Column("delivery_id", sa.Text, nullable=False),
    sa.Column("rule", sa.Text, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("batch_id", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("visible_at", UtcTime, nullable=False),
    sa.Column("receipt", sa.Text),
    sa.Column("received_at", UtcTime),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("ended", JsonText, nullable=False),
    sa.Column("expires_at", UtcTime, nullable=False),
    sa.Column("finished_at", UtcTime),
    sa.Column("reason", sa.Text),
    sa.Column("detail", Message),
    sa.Column("order_key", sa.Text),
    sa.Column("head", JsonText, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("payload", sa.LargeBinary, nullable=False),
    sa.UniqueConstraint("delivery_id"),
    one_of("state", QueueState),
    **NUMBERED,
)
_row = queue_delivery.c

READY = _row.state == word("ready")
RECEIVED = _row.state == word("received")
BLOCKED = _row.state == word("blocked")
FINISHED = _row.state.in_([word("acknowledged"), word("dead")])
UNFINISHED = _row.state.in_([word("ready"), word("blocked"), word("received")])
SETTLED = _row.state == word("settled")
partial("ix_queue_delivery_ready", READY, _row.rule, _row.target, _row.visible_at, _row.number)
partial("ix_queue_delivery_received", RECEIVED, _row.visible_at)
partial("ix_queue_delivery_finished", FINISHED, _row.batch_id, _row.rule, _row.target, _row.finished_at)
partial("ix_queue_delivery_unfinished", UNFINISHED, _row.batch_id, _row.rule, _row.target)
partial("ix_queue_delivery_settled", SETTLED, _row.finished_at)
partial("uq_queue_delivery_receipt", _row.receipt.is_not(None), _row.receipt, unique=True)
_IN_ORDER = UNFINISHED & _row.order_key.is_not(None)
partial("ix_queue_delivery_order", _IN_ORDER, _row.rule, _row.target, _row.order_key, _row.number)

#: The time for which the row of a settled delivery is kept.
KEPT: Final = timedelta(hours=1)
#: The deliveries of a batch are settled once all of them are finished, or when the first one has been finished for this
#: long; for each 1,000 unfinished ones, which a batch must look at in vain, a second is added.
SETTLED_AFTER: Final = timedelta(seconds=30)
_UNFINISHED_A_SECOND: Final = 1_000
_RECEIPT_BYTES: Final = 24

_IDS = sa.bindparam("ids", expanding=True, type_=sa.Text)
_RECEIPTS = sa.bindparam("receipts", expanding=True, type_=sa.Text)
_OF_TARGET = (_row.rule == sa.bindparam("of_rule")) & (_row.target == sa.bindparam("of_target"))
_ONE = _row.number == sa.bindparam("of_number")
_STATE_COLUMNS = [each for each in queue_delivery.columns if each.name not in ("payload", "size", "head", "expires_at")]

#: The deliveries with the given ids whose status is not final.
IN_QUEUES = sa.select(*_STATE_COLUMNS).where(_row.delivery_id.in_(_IDS), ~SETTLED)

#: The same, locked until the transaction ends.
KNOWN_IN_QUEUE = IN_QUEUES.with_for_update()

#: Records the batch that pushes a delivery, and until when it can be received.
PUSHED_AGAIN = (
    sa.update(queue_delivery)
    .where(_ONE)
    .values(batch_id=sa.bindparam("of_batch"), expires_at=sa.bindparam("until", type_=UtcTime))
)

#: Makes an unfinished delivery dead.
MAKE_DEAD = (
    sa.update(queue_delivery)
    .where(_ONE, UNFINISHED)
    .values(
        state="dead",
        finished_at=NOW,
        receipt=None,
        reason=sa.bindparam("because"),
        detail=sa.bindparam("details", type_=Message),
    )
)

#: Removes the rows of settled deliveries, which are delivered again.
FORGET_SETTLED = sa.delete(queue_delivery).where(_row.delivery_id.in_(_IDS), SETTLED)

#: Those of the given order keys of a target that have unfinished deliveries.
KEYS_IN_QUEUE = sa.select(_row.order_key).where(_OF_TARGET, _IN_ORDER, _row.order_key.in_(_IDS)).distinct()

#: The deliveries of a target that can be received now, the longest visible first; those that another consumer is about
#: to receive are skipped.
RECEIVABLE = (
    sa.select(_row.number, _row.visible_at, _row.size)
    .where(_OF_TARGET, READY, _row.visible_at <= NOW, _row.expires_at > NOW)
    .order_by(_row.visible_at, _row.number)
    .limit(sa.bindparam("most", type_=sa.Integer))
    .with_for_update(skip_locked=True)
)

#: Selects a row if a target has a delivery that can be received now.
HAS_RECEIVABLE = sa.select(_row.number).where(_OF_TARGET, READY, _row.visible_at <= NOW, _row.expires_at > NOW).limit(1)

#: Gives a delivery to a consumer.
RECEIVE = (
    sa.update(queue_delivery)
    .where(_ONE, READY)
    .values(
        state="received",
        receipt=sa.bindparam("new_receipt"),
        received_at=NOW,
        visible_at=sa.bindparam("until", type_=UtcTime),
        attempts=_row.attempts + 1,
    )
)

#: Deliveries by number, with payloads.
WHOLE = sa.select(queue_delivery).where(_row.number.in_(sa.bindparam("numbers", expanding=True)))

#: The deliveries with the given receipts; locked until the transaction ends.
OF_RECEIPTS = sa.select(*_STATE_COLUMNS).where(_row.receipt.in_(_RECEIPTS)).with_for_update()

#: Acknowledges a delivery that a consumer has.
ACKNOWLEDGE = (
    sa.update(queue_delivery).where(_ONE, RECEIVED, _row.visible_at > NOW).values(state="acknowledged", finished_at=NOW)
)

#: Changes until when a consumer has a delivery.
EXTEND = (
    sa.update(queue_delivery)
    .where(_ONE, RECEIVED, _row.visible_at > NOW)
    .values(visible_at=sa.bindparam("until", type_=UtcTime))
)

#: The deliveries that consumers did not acknowledge in time, the longest expired first.
EXPIRED = (
    sa.select(*_STATE_COLUMNS)
    .where(RECEIVED, _row.visible_at <= NOW)
    .order_by(_row.visible_at)
    .limit(sa.bindparam("most", type_=sa.Integer))
)

#: The same, of one target.
EXPIRED_OF_TARGET = EXPIRED.where(_OF_TARGET)

#: Ends an attempt, unless the consumer has acknowledged or extended it meanwhile.
END_ATTEMPT = (
    sa.update(queue_delivery)
    .where(
        _ONE,
        RECEIVED,
        _row.receipt == sa.bindparam("of_receipt"),
        _row.visible_at == sa.bindparam("was_visible_at", type_=UtcTime),
    )
    .values(
        state=sa.bindparam("to"),
        visible_at=sa.bindparam("until", type_=UtcTime),
        receipt=None,
        ended=sa.bindparam("all_ended", type_=JsonText),
        finished_at=sa.bindparam("at", type_=UtcTime),
        reason=sa.bindparam("because"),
        detail=sa.bindparam("details", type_=Message),
    )
)

_of_key = queue_delivery.alias("of_key")
_SAME_KEY = (
    (_of_key.c.rule == sa.bindparam("of_rule"))
    & (_of_key.c.target == sa.bindparam("of_target"))
    & (_of_key.c.order_key == sa.bindparam("of_order_key"))
)
_first_blocked = (
    sa.select(_of_key.c.number)
    .where(_SAME_KEY, _of_key.c.state == word("blocked"))
    .order_by(_of_key.c.number)
    .limit(1)
    .scalar_subquery()
)

#: Makes the next delivery of an order key ready, unless an earlier one is not finished.
UNBLOCK = (
    sa.update(queue_delivery)
    .where(
        _row.number == _first_blocked,
        ~sa.exists().where(_SAME_KEY, _of_key.c.state.in_([word("ready"), word("received")])),
    )
    .values(state="ready", visible_at=NOW)
)

#: Marks a delivery as settled; only an acknowledged one keeps its receipt.
SETTLE = (
    sa.update(queue_delivery)
    .where(_row.delivery_id.in_(_IDS), ~SETTLED)
    .values(
        state="settled",
        payload=b"",
        receipt=sa.case((_row.state == word("acknowledged"), _row.receipt), else_=None),
        finished_at=sa.func.coalesce(_row.finished_at, NOW),
    )
)

#: Deletes rows that were settled long ago.
FORGET_OLD = sa.delete(queue_delivery).where(SETTLED, _row.finished_at <= sa.bindparam("before", type_=UtcTime))

#: Deletes the rows of targets that have no pending deliveries and no open batch: rules do not name them as queues any
#: more, and their deliveries were settled by other means.
FORGET_ABANDONED = sa.delete(queue_delivery).where(
    ~SETTLED,
    ~sa.exists().where(pending.c.rule == _row.rule, pending.c.target == _row.target, WAITING),
    ~sa.exists().where(batch.c.batch_id == _row.batch_id, batch.c.state != word("committed")),
)

_LATER = (
    (pending.c.batch_id == _row.batch_id)
    & (pending.c.rule == _row.rule)
    & (pending.c.target == _row.target)
    & SCHEDULED
    & (pending.c.due_at > NOW)
)

#: The finished deliveries that a later batch must settle, by batch and target, and since when the first is finished.
TO_SETTLE = (
    sa.select(_row.batch_id, _row.rule, _row.target, sa.func.min(_row.finished_at).label("first_at"))
    .where(FINISHED, sa.exists().where(_LATER))
    .group_by(_row.batch_id, _row.rule, _row.target)
)

#: The number of a batch's deliveries to a target that are not finished.
COUNT_UNFINISHED = sa.select(sa.func.count()).where(_OF_TARGET, UNFINISHED, _row.batch_id == sa.bindparam("of_batch"))

#: Makes the pending deliveries of a batch to a target due.
MAKE_DUE = (
    sa.update(pending)
    .where(
        pending.c.batch_id == sa.bindparam("of_batch"),
        pending.c.rule == sa.bindparam("of_rule"),
        pending.c.target == sa.bindparam("of_target"),
        SCHEDULED,
        pending.c.due_at > NOW,
    )
    .values(due_at=NOW)
)

_shown_state = sa.case((READY & (_row.visible_at > NOW), "delayed"), else_=_row.state)

#: The number of a target's deliveries in each state; ready ones that are visible later are `delayed`.
COUNTS = (
    sa.select(_row.rule, _row.target, _shown_state, sa.func.count(), sa.func.min(_row.visible_at))
    .where(~SETTLED)
    .group_by(_row.rule, _row.target, _shown_state)
)

Pair = tuple[str, str]


class Queues(Aggregate):
    """Deliveries in queues, and what consumers do with them."""

    def push_again(
        self,
        batch_id: str,
        expires_at: Mapping[str, datetime],
        ends: Mapping[str, tuple[str, str]],
        *,
        ordered: bool = False,
    ) -> dict[str, QueuedDelivery]:
        """Return those of the given deliveries that are in a queue, by id, and record that a batch pushes them.

        `expires_at` says for each delivery until when it can be received. Those in `ends`, with reason and detail,
        become dead unless a consumer has them.
        """
        now = self._now()
        with self._writing() as connection:
            self._take_turn(connection, ordered)
            known = [_to_delivery(row) for row in connection.execute(KNOWN_IN_QUEUE, {"ids": list(expires_at)})]
            if not known:
                return {}
            pushed = [
                {"of_number": each.number, "of_batch": batch_id, "until": expires_at[each.delivery_id]}
                for each in known
            ]
            connection.execute(PUSHED_AGAIN, pushed)
            over = [
                each
                for each in known
                if each.delivery_id in ends
                and each.state in ("ready", "blocked", "received")
                and not each.is_received(now)
            ]
            if not over:
                return {each.delivery_id: each for each in known}
            for each in over:
                reason, detail = ends[each.delivery_id]
                of = {"of_number": each.number, "now": now, "because": reason, "details": detail}
                connection.execute(MAKE_DEAD, of)
            _unblock(connection, over, now)
            rows = connection.execute(KNOWN_IN_QUEUE, {"ids": [each.delivery_id for each in known]})
            return {row.delivery_id: _to_delivery(row) for row in rows}

    def add(self, batch_id: str, entries: Sequence[QueueEntry]) -> None:
        """Put deliveries of one target into its queue, in this order; one that is there already stays as it is."""
        if not entries:
            return
        now = self._now()
        with self._writing() as connection:
            self._take_turn(connection, any(each.order_key is not None for each in entries))
            connection.execute(FORGET_SETTLED, {"ids": [each.delivery_id for each in entries]})
            busy = _busy_keys(connection, entries)
            rows = []
            for each in entries:
                rows.append(_new_row(each, batch_id, now, is_blocked=each.order_key in busy))
                if each.order_key is not None:
                    busy.add(each.order_key)
            connection.execute(insert_or_skip(queue_delivery), rows)

    def has_receivable(self, targets: Iterable[Pair]) -> bool:
        """Return whether a target has a delivery that can be received now."""
        now = self._now()
        with self._reading() as connection:
            return any(
                connection.execute(HAS_RECEIVABLE, {"of_rule": rule, "of_target": target, "now": now}).first()
                is not None
                for rule, target in targets
            )

    def receive(
        self, targets: Iterable[Pair], most: int, most_bytes: int, visible_for: Mapping[Pair, timedelta]
    ) -> list[ReceivedDelivery]:
        """Give a consumer up to `most` deliveries of some targets, with together at most `most_bytes` of payload.

        One delivery is given however large it is.
        """
        now = self._now()
        with self._writing() as connection:
            found: list[tuple[datetime, int, int, Pair]] = []
            for rule, target in targets:
                of = {"of_rule": rule, "of_target": target, "now": now, "most": most}
                rows = connection.execute(RECEIVABLE, of)
                found += [(row.visible_at, row.number, row.size, (rule, target)) for row in rows]
            chosen: dict[int, Pair] = {}
            total = 0
            for _, number, size, pair in sorted(found)[:most]:
                total += size
                if chosen and total > most_bytes:
                    break
                chosen[number] = pair
            if not chosen:
                return []
            given = [
                {
                    "of_number": number,
                    "new_receipt": secrets.token_urlsafe(_RECEIPT_BYTES),
                    "now": now,
                    "until": now + visible_for[pair],
                }
                for number, pair in chosen.items()
            ]
            connection.execute(RECEIVE, given)
            whole = {row.number: row for row in connection.execute(WHOLE, {"numbers": list(chosen)})}
            return [_to_received(whole[number]) for number in chosen]

    def acknowledge(self, targets: Collection[Pair], receipts: Sequence[str], *, ordered: bool = False) -> set[str]:
        """Acknowledge deliveries of these targets; return the receipts that are acknowledged, now or before.

        `ordered` says whether one of the targets is ordered.
        """
        now = self._now()
        with self._writing() as connection:
            self._take_turn(connection, ordered)
            known = self._find_received(connection, targets, receipts)
            going = [each for each in known if each.is_received(now)]
            if going:
                connection.execute(ACKNOWLEDGE, [{"of_number": each.number, "now": now} for each in going])
                _unblock(connection, going, now)
            done = [*going, *(each for each in known if each.state in ("acknowledged", "settled"))]
            return {each.receipt for each in done if each.receipt is not None}

    def extend(
        self, targets: Collection[Pair], receipts: Sequence[str], visible_for: timedelta, longest: timedelta
    ) -> set[str]:
        """Let a consumer have deliveries for this time from now on, at most `longest` after it received them; return
        the receipts of those that it still has."""
        now = self._now()
        with self._writing() as connection:
            known = self._find_received(connection, targets, receipts)
            going = [each for each in known if each.is_received(now)]
            changes = [
                {
                    "of_number": each.number,
                    "now": now,
                    "until": min(now + visible_for, (each.received_at or now) + longest),
                }
                for each in going
            ]
            if changes:
                connection.execute(EXTEND, changes)
            return {each.receipt for each in going if each.receipt is not None}

    def held(self, targets: Collection[Pair], receipts: Sequence[str]) -> list[QueuedDelivery]:
        """Return the deliveries that consumers have with these receipts."""
        now = self._now()
        with self._writing() as connection:
            known = self._find_received(connection, targets, receipts)
            return [each for each in known if each.is_received(now)]

    def expired(self, limit: int, targets: Collection[Pair] | None = None) -> list[QueuedDelivery]:
        """Return deliveries that consumers did not acknowledge in time, of all targets or at most `limit` of each of
        `targets`, the longest expired first."""
        of: dict[str, object] = {"now": self._now(), "most": limit}
        with self._reading() as connection:
            if targets is None:
                rows = connection.execute(EXPIRED, of).all()
            else:
                rows = [
                    row
                    for rule, target in targets
                    for row in connection.execute(EXPIRED_OF_TARGET, {**of, "of_rule": rule, "of_target": target})
                ]
            return [_to_delivery(row) for row in rows]

    def end_attempts(self, ends: Sequence[AttemptEnd]) -> list[QueuedDelivery]:
        """End attempts; return their deliveries, without those that were acknowledged or extended meanwhile."""
        if not ends:
            return []
        now = self._now()
        done = []
        with self._writing() as connection:
            self._take_turn(connection, any(each.delivery.order_key is not None for each in ends))
            for each in ends:
                delivery = each.delivery
                reason, detail = each.dead or (None, None)
                change = {
                    "of_number": delivery.number,
                    "of_receipt": delivery.receipt,
                    "was_visible_at": delivery.visible_at,
                    "to": "ready" if each.dead is None else "dead",
                    "until": each.visible_at,
                    "all_ended": [_encode(attempt) for attempt in (*delivery.ended, each.attempt)],
                    "at": None if each.dead is None else now,
                    "because": reason,
                    "details": detail,
                }
                if connection.execute(END_ATTEMPT, change).rowcount == 1:
                    done.append(delivery)
            _unblock(connection, [each.delivery for each in ends if each.dead is not None], now)
        return done

    def settle(self, delivery_ids: Sequence[str]) -> None:
        """Record that the status of these deliveries is final, so that no consumer receives them any more.

        Rows of deliveries that were settled long ago are deleted.
        """
        now = self._now()
        with self._writing() as connection:
            self._take_turn(connection, True)
            known = [_to_delivery(row) for row in connection.execute(KNOWN_IN_QUEUE, {"ids": list(delivery_ids)})]
            if known:
                connection.execute(SETTLE, {"ids": [each.delivery_id for each in known], "now": now})
                _unblock(connection, known, now)
                connection.execute(FORGET_OLD, {"before": now - KEPT})

    def forget_abandoned(self) -> int:
        """Delete the rows of deliveries that other means than a queue have settled; return their number."""
        return self._change(FORGET_ABANDONED, {})

    def has_work(self, now: datetime) -> bool:
        """Return whether a retry batch would settle finished deliveries, or an attempt has expired."""
        with self._reading() as connection:
            if connection.execute(EXPIRED, {"now": now, "most": 1}).first() is not None:
                return True
            return any(_may_settle(connection, group, now) for group in connection.execute(TO_SETTLE, {"now": now}))

    def make_finished_due(self, now: datetime) -> int:
        """Make the pending rows due whose deliveries are finished; return the number of pending rows."""
        with self._reading() as connection:
            groups = [
                group
                for group in connection.execute(TO_SETTLE, {"now": now}).all()
                if _may_settle(connection, group, now)
            ]
        if not groups:
            return 0
        with self._writing() as connection:
            return sum(
                connection.execute(MAKE_DUE, _group_parameters(group) | {"now": now}).rowcount for group in groups
            )

    def find(self, delivery_ids: Sequence[str]) -> list[QueuedDelivery]:
        """Return those of the given deliveries that are in a queue."""
        return [_to_delivery(row) for row in self._rows(IN_QUEUES, {"ids": list(delivery_ids)})]

    def counts(self) -> list[QueueCount]:
        """Return the number of unsettled deliveries in queues by target and state."""
        return [QueueCount(*tuple(row)) for row in self._rows(COUNTS, {"now": self._now()})]

    def _find_received(
        self, connection: sa.Connection, targets: Collection[Pair], receipts: Sequence[str]
    ) -> list[QueuedDelivery]:
        rows = connection.execute(OF_RECEIPTS, {"receipts": list(receipts)})
        return [each for each in map(_to_delivery, rows) if (each.rule, each.target) in targets]

    @staticmethod
    def _take_turn(connection: sa.Connection, ordered: bool) -> None:
        """Wait for other transactions that add or finish ordered deliveries: one of two at the same time would miss the
        delivery that it must unblock."""
        if ordered:
            connection.execute(TAKE_TURN)


def _busy_keys(connection: sa.Connection, entries: Sequence[QueueEntry]) -> set[str | None]:
    keys = {each.order_key for each in entries if each.order_key is not None}
    if not keys:
        return set()
    of = {"of_rule": entries[0].rule, "of_target": entries[0].target, "ids": list(keys)}
    return set(connection.execute(KEYS_IN_QUEUE, of).scalars())


def _unblock(connection: sa.Connection, finished: Iterable[QueuedDelivery], now: datetime) -> None:
    keys = {(each.rule, each.target, each.order_key) for each in finished if each.order_key is not None}
    for rule, target, key in sorted(keys):
        connection.execute(UNBLOCK, {"of_rule": rule, "of_target": target, "of_order_key": key, "now": now})


def _group_parameters(group: Any) -> dict[str, object]:
    return {"of_batch": group.batch_id, "of_rule": group.rule, "of_target": group.target}


def _may_settle(connection: sa.Connection, group: Any, now: datetime) -> bool:
    unfinished = connection.execute(COUNT_UNFINISHED, _group_parameters(group)).scalar_one()
    waits = SETTLED_AFTER + timedelta(seconds=unfinished / _UNFINISHED_A_SECOND)
    return bool(unfinished == 0 or group.first_at <= now - waits)


def _new_row(entry: QueueEntry, batch_id: str, now: datetime, *, is_blocked: bool) -> dict[str, object]:
    return {
        "delivery_id": entry.delivery_id,
        "rule": entry.rule,
        "target": entry.target,
        "batch_id": batch_id,
        "state": "blocked" if is_blocked else "ready",
        "visible_at": now,
        "attempts": entry.attempts,
        "ended": [],
        "expires_at": entry.expires_at,
        "order_key": entry.order_key,
        "head": [entry.content_type, entry.headers],
        "size": len(entry.payload),
        "payload": entry.payload,
    }


def _encode(attempt: EndedAttempt) -> list[object]:
    number, started_at, ended_at, error_class, error = attempt
    return [number, microseconds(started_at), microseconds(ended_at), error_class, error]


def _to_delivery(row: sa.Row[Any]) -> QueuedDelivery:
    values = dict(row._mapping)
    del values["batch_id"]
    times = UtcTime()
    values["ended"] = tuple(
        EndedAttempt(number, _time(times, started), _time(times, ended), error_class, error)
        for number, started, ended, error_class, error in values["ended"]
    )
    return QueuedDelivery(**values)


def _time(times: UtcTime, value: int) -> datetime:
    found = times.process_result_value(value, None)  # type: ignore[arg-type]  # it uses no dialect
    assert found is not None, "a number was stored"
    return found


def _to_received(row: sa.Row[Any]) -> ReceivedDelivery:
    content_type, headers = row.head
    return ReceivedDelivery(
        row.receipt,
        row.delivery_id,
        row.rule,
        row.target,
        row.attempts,
        row.visible_at,
        content_type,
        headers,
        row.payload,
    )
