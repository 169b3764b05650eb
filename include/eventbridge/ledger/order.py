"""Manages ordered targets in the ledger: leases of shards, open pending rows, and the rows that block a rule."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from eventbridge.ledger.database import Aggregate
from eventbridge.ledger.definitions import NOW, UtcTime, insert_or_skip, metadata, microseconds
from eventbridge.ledger.loose_index_scan import on_alias, one_of_each
from eventbridge.ledger.pending import (
    AGE_STOOD_STILL,
    IN_THAT_SHARD,
    OF_TARGET,
    ON_HOLD,
    RELEASED,
    TAKEN,
    TAKEN_OF_THAT_SHARD,
    UNTAKEN,
    UNTAKEN_IN_ORDER,
    WAITING,
    other,
    pending,
    to_pending,
)
from eventbridge.model.pending import PendingDeliveries
from eventbridge.policy.ordering import BEHIND_ITS_KEY

#: The process that may send the deliveries of an ordered target's shard, and the time until which it may. Its name is
#: never reused.
order_shard = sa.Table(
    "order_shard",
    metadata,
    sa.Column("rule", sa.Text, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("lease_holder", sa.Text, nullable=False),
    sa.Column("lease_until", UtcTime, nullable=False),
    sa.PrimaryKeyConstraint("rule", "target", "shard"),
)

_SHARD = (
    (order_shard.c.rule == sa.bindparam("of_rule"))
    & (order_shard.c.target == sa.bindparam("of_target"))
    & (order_shard.c.shard == sa.bindparam("of_shard"))
)
_BECAUSE = sa.bindparam("because", type_=pending.c.hold_reason.type)
_MINE = order_shard.c.lease_holder == sa.bindparam("holder")

#: Those rows of an ordered target that are not closed, taken or not.
OPEN_OF_TARGET = (
    sa.select(pending).where(OF_TARGET, WAITING, pending.c.order_shard.is_not(None)).order_by(pending.c.pending_id)
)

#: The rows that are not closed, taken or not, in one shard of an ordered target.
OPEN_OF_SHARD = OPEN_OF_TARGET.where(pending.c.order_shard == sa.bindparam("of_shard", type_=sa.Integer))

#: Those shards of a target from which uncommitted batches have taken rows.
SHARDS_TAKEN = sa.select(pending.c.order_shard).where(OF_TARGET, TAKEN, pending.c.order_shard.is_not(None)).distinct()

_one = one_of_each([pending.c.order_shard], OF_TARGET & UNTAKEN_IN_ORDER)
_UNTAKEN_OF_THAT_SHARD = IN_THAT_SHARD & on_alias(other, UNTAKEN_IN_ORDER)

#: The shards of a target whose open rows are all on hold for one reason, and not taken.
SHARDS_ON_HOLD = sa.select(pending.c.order_shard).where(
    pending.c.pending_id == _one.c.pending_id,
    ~TAKEN_OF_THAT_SHARD,
    # rows with this hold reason may be many; rows with a different one sort before or after them, so that each side
    # takes one search
    ~sa.exists().where(_UNTAKEN_OF_THAT_SHARD, other.c.state > "on_hold"),
    ~sa.exists().where(_UNTAKEN_OF_THAT_SHARD, other.c.state == "on_hold", other.c.hold_reason < _BECAUSE),
    ~sa.exists().where(_UNTAKEN_OF_THAT_SHARD, other.c.state == "on_hold", other.c.hold_reason > _BECAUSE),
)

#: Acquires an expired lease, or extends a lease that the caller holds.
TAKE_LEASE = (
    sa.update(order_shard)
    .where(_SHARD, _MINE | (order_shard.c.lease_until <= NOW))
    .values(lease_holder=sa.bindparam("holder"), lease_until=sa.bindparam("until", type_=UtcTime))
)

#: Ends the holder's lease.
END_LEASE = sa.update(order_shard).where(_SHARD, _MINE).values(lease_until=NOW)

#: The unexpired leases of a target.
LEASES = sa.select(order_shard.c.shard, order_shard.c.lease_holder).where(
    order_shard.c.rule == sa.bindparam("of_rule"),
    order_shard.c.target == sa.bindparam("of_target"),
    order_shard.c.lease_until > NOW,
)

#: Makes due those rows of a shard that are waiting for earlier rows of their keys; the wait does not add to their age.
RELEASE_SHARD = (
    sa.update(pending)
    .where(
        OF_TARGET,
        UNTAKEN,
        pending.c.state == "on_hold",
        pending.c.hold_reason == _BECAUSE,
        pending.c.order_shard == sa.bindparam("of_shard", type_=sa.Integer),
    )
    .values(RELEASED | AGE_STOOD_STILL)
)

#: The rows of a rule's ordered targets that are not closed and have a hold reason, as a state or as a mark.
ON_HOLD_OF_RULE = (
    sa.select(pending)
    .where(
        pending.c.rule == sa.bindparam("of_rule"),
        WAITING,
        pending.c.order_shard.is_not(None),
        pending.c.hold_reason != "",
    )
    .order_by(pending.c.pending_id)
)

#: Makes a row on hold due, with an operator's decision as its hold reason. This reason keeps the row from being held
#: again.
MARK_ON_HOLD = (
    sa.update(pending)
    .where(pending.c.pending_id == sa.bindparam("of_row"), ON_HOLD, pending.c.hold_reason == _BECAUSE)
    .values(state="scheduled", due_at=NOW, hold_reason=sa.bindparam("instead", type_=pending.c.hold_reason.type))
)


class Order(Aggregate):
    """Shards of ordered targets, their leases and their open rows."""

    def acquire_lease(self, rule: str, target: str, shard: int, holder: str, until: datetime) -> bool:
        """Acquire the lease of a shard until the given time, or extend it; return False while another holder has it.

        A holder's name is never reused, so a holder that lost the lease cannot mistake another's lease for its own.
        """
        now = self._now()
        of = {"of_rule": rule, "of_target": target, "of_shard": shard, "holder": holder, "until": until, "now": now}
        first = {"rule": rule, "target": target, "shard": shard, "lease_holder": holder, "lease_until": until}
        with self._writing() as connection:
            if connection.execute(TAKE_LEASE, of).rowcount == 1:
                return True
            return connection.execute(insert_or_skip(order_shard), first).rowcount == 1

    def release_lease(self, rule: str, target: str, shard: int, holder: str) -> bool:
        """End the holder's lease, which must have no deliveries in flight; return False if another holder has it."""
        of = {"of_rule": rule, "of_target": target, "of_shard": shard, "holder": holder, "now": self._now()}
        return self._change(END_LEASE, of) == 1

    def leases(self, rule: str, target: str) -> dict[int, str]:
        """Return the holders of a target's current leases, by shard; a shard without a lease is absent."""
        of = {"of_rule": rule, "of_target": target, "now": self._now()}
        return {row.shard: row.lease_holder for row in self._rows(LEASES, of)}

    def open_rows(self, rule: str, target: str, shard: int | None = None) -> list[PendingDeliveries]:
        """Return the pending rows of an ordered target, or of one shard, that are not closed, including taken ones."""
        of = {"of_rule": rule, "of_target": target} | ({} if shard is None else {"of_shard": shard})
        statement = OPEN_OF_TARGET if shard is None else OPEN_OF_SHARD
        return [to_pending(row) for row in self._rows(statement, of)]

    def blocked_shards(self, rule: str, target: str) -> list[int]:
        """Return the shards of a target whose open rows all wait for earlier rows, so none can unblock the others."""
        of = {"of_rule": rule, "of_target": target, "because": BEHIND_ITS_KEY}
        with self._reading() as connection:
            return sorted(connection.execute(SHARDS_ON_HOLD, of).scalars())

    def release_shard(self, rule: str, target: str, shard: int) -> int:
        """Make due those rows of a shard that are waiting for earlier rows of their keys; return how many.

        The wait does not count towards their age.
        """
        now = self._now()
        of = {"of_rule": rule, "of_target": target, "of_shard": shard, "because": BEHIND_ITS_KEY, "now": now}
        return self._change(RELEASE_SHARD, of | {"microseconds": microseconds(now)})

    def rows_on_hold(self, rule: str) -> list[PendingDeliveries]:
        """Return the open rows of a rule's ordered targets that have a hold reason, in order of their ids."""
        return [to_pending(row) for row in self._rows(ON_HOLD_OF_RULE, {"of_rule": rule})]

    def release_row(self, pending_id: int, hold_reason: str, instead: str) -> bool:
        """Make a row on hold due, with the reason `instead`; return False if it is not on hold for `hold_reason`."""
        of = {"of_row": pending_id, "because": hold_reason, "instead": instead, "now": self._now()}
        return self._change(MARK_ON_HOLD, of) == 1
