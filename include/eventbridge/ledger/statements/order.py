"""Statements about ordered targets: their open rows, the leases of their shards, the rows that hold a rule."""

from __future__ import annotations

from sqlalchemy import BigInteger, Integer, bindparam, exists, select, type_coerce, update

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.statements.loose_index_scan import on, one_of_each
from eventbridge.ledger.tables import ON_HOLD, TAKEN, UNTAKEN, UNTAKEN_IN_ORDER, WAITING, order_shard, pending

_NOW = bindparam("now", type_=UtcTime)
_TARGET = (pending.c.rule == bindparam("of_rule")) & (pending.c.target == bindparam("of_target"))
_SHARD = (
    (order_shard.c.rule == bindparam("of_rule"))
    & (order_shard.c.target == bindparam("of_target"))
    & (order_shard.c.shard == bindparam("of_shard"))
)
_BECAUSE = bindparam("because", type_=pending.c.held.type)
_MINE = order_shard.c.lease_holder == bindparam("holder")

_other = pending.alias("other")
_IN_THAT_SHARD = (
    (_other.c.rule == pending.c.rule)
    & (_other.c.target == pending.c.target)
    & (_other.c.order_shard == pending.c.order_shard)
)
_TAKEN_OF_THAT_SHARD = exists().where(_IN_THAT_SHARD, on(_other, TAKEN))

#: Whether a batch has taken rows of a shard that one of some rows belongs to.
SHARD_TAKEN = select(pending.c.pending_id).where(
    pending.c.pending_id.in_(bindparam("ids", expanding=True)), pending.c.order_shard.is_not(None), _TAKEN_OF_THAT_SHARD
)

#: The open rows of an ordered target, taken or not.
OPEN_OF_TARGET = (
    select(pending).where(_TARGET, WAITING, pending.c.order_shard.is_not(None)).order_by(pending.c.pending_id)
)

#: The open rows of one shard of an ordered target, taken or not.
OPEN_OF_SHARD = OPEN_OF_TARGET.where(pending.c.order_shard == bindparam("of_shard", type_=Integer))

#: The shards of a target from which batches have taken rows.
SHARDS_TAKEN = select(pending.c.order_shard).where(_TARGET, TAKEN, pending.c.order_shard.is_not(None)).distinct()

_one = one_of_each([pending.c.order_shard], _TARGET & UNTAKEN_IN_ORDER)
_UNTAKEN_OF_THAT_SHARD = _IN_THAT_SHARD & on(_other, UNTAKEN_IN_ORDER)

#: The shards of a target in which all that is open is on hold for one reason, and not taken.
SHARDS_ON_HOLD = select(pending.c.order_shard).where(
    pending.c.pending_id == _one.c.pending_id,
    ~_TAKEN_OF_THAT_SHARD,
    # rows with another hold reason sort before or after rows with this one, which may be many: each side is one search
    ~exists().where(_UNTAKEN_OF_THAT_SHARD, _other.c.state > "on_hold"),
    ~exists().where(_UNTAKEN_OF_THAT_SHARD, _other.c.state == "on_hold", _other.c.held < _BECAUSE),
    ~exists().where(_UNTAKEN_OF_THAT_SHARD, _other.c.state == "on_hold", _other.c.held > _BECAUSE),
)

#: The first lease of a shard.
FIRST_LEASE = insert_or_skip(order_shard)

#: Acquires a free lease, or extends the holder's.
TAKE_LEASE = (
    update(order_shard)
    .where(_SHARD, _MINE | (order_shard.c.lease_until <= _NOW))
    .values(lease_holder=bindparam("holder"), lease_until=bindparam("until", type_=UtcTime))
)

#: Ends the holder's lease.
END_LEASE = update(order_shard).where(_SHARD, _MINE).values(lease_until=_NOW)

#: The unexpired leases of a target.
LEASES = select(order_shard.c.shard, order_shard.c.lease_holder).where(
    order_shard.c.rule == bindparam("of_rule"),
    order_shard.c.target == bindparam("of_target"),
    order_shard.c.lease_until > _NOW,
)

_ON_HOLD_FOR = bindparam("microseconds", type_=BigInteger) - type_coerce(pending.c.on_hold_since, BigInteger)

#: Makes due the rows of a shard that wait behind their keys; their wait does not count towards their age.
RELEASE_SHARD = (
    update(pending)
    .where(
        _TARGET,
        UNTAKEN,
        pending.c.state == "on_hold",
        pending.c.held == _BECAUSE,
        pending.c.order_shard == bindparam("of_shard", type_=Integer),
    )
    .values(
        state="scheduled",
        due_at=_NOW,
        held="",
        on_hold_since=None,
        on_hold_seconds=pending.c.on_hold_seconds + _ON_HOLD_FOR / 1_000_000.0,
        expires_at=type_coerce(pending.c.expires_at, BigInteger) + _ON_HOLD_FOR,
    )
)

#: On-hold rows of a rule whose deliveries may not be dead-lettered.
ON_HOLD_OF_RULE = (
    select(pending)
    .where(pending.c.rule == bindparam("of_rule"), WAITING, pending.c.order_shard.is_not(None), pending.c.held != "")
    .order_by(pending.c.pending_id)
)

#: Records a person's decision on a row on hold and makes it due: the record stays, so it is not put on hold again.
MARK_ON_HOLD = (
    update(pending)
    .where(pending.c.pending_id == bindparam("of_row"), ON_HOLD, pending.c.held == _BECAUSE)
    .values(state="scheduled", due_at=_NOW, held=bindparam("instead", type_=pending.c.held.type))
)
