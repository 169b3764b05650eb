"""Statements about ordered targets: what is open of them, who may send what of a shard, at what a rule is held."""

from __future__ import annotations

from sqlalchemy import BigInteger, Integer, bindparam, exists, select, type_coerce, update

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.statements.loose_index_scan import on, one_of_each
from eventbridge.ledger.tables import HELD, TAKEN, UNTAKEN, UNTAKEN_IN_ORDER, WAITING, order_shard, parked

_NOW = bindparam("now", type_=UtcTime)
_TARGET = (parked.c.rule == bindparam("of_rule")) & (parked.c.target == bindparam("of_target"))
_SHARD = (
    (order_shard.c.rule == bindparam("of_rule"))
    & (order_shard.c.target == bindparam("of_target"))
    & (order_shard.c.shard == bindparam("of_shard"))
)
_BECAUSE = bindparam("because", type_=parked.c.held.type)
_MINE = order_shard.c.lease_holder == bindparam("holder")

_other = parked.alias("other")
_IN_THAT_SHARD = (
    (_other.c.rule == parked.c.rule)
    & (_other.c.target == parked.c.target)
    & (_other.c.order_shard == parked.c.order_shard)
)
_TAKEN_OF_THAT_SHARD = exists().where(_IN_THAT_SHARD, on(_other, TAKEN))

#: Whether a batch has taken rows of a shard that one of some rows belongs to.
SHARD_TAKEN = select(parked.c.parked_id).where(
    parked.c.parked_id.in_(bindparam("ids", expanding=True)), parked.c.order_shard.is_not(None), _TAKEN_OF_THAT_SHARD
)

#: What is open of an ordered target, taken or not.
OPEN_OF_TARGET = select(parked).where(_TARGET, WAITING, parked.c.order_shard.is_not(None)).order_by(parked.c.parked_id)

#: What is open of one shard of an ordered target, taken or not.
OPEN_OF_SHARD = OPEN_OF_TARGET.where(parked.c.order_shard == bindparam("of_shard", type_=Integer))

#: The shards of a target that batches have taken rows of.
SHARDS_TAKEN = select(parked.c.order_shard).where(_TARGET, TAKEN, parked.c.order_shard.is_not(None)).distinct()

_one = one_of_each([parked.c.order_shard], _TARGET & UNTAKEN_IN_ORDER)
_UNTAKEN_OF_THAT_SHARD = _IN_THAT_SHARD & on(_other, UNTAKEN_IN_ORDER)

#: The shards of a target in which all that is open is held for one reason, and not taken.
SHARDS_HELD = select(parked.c.order_shard).where(
    parked.c.parked_id == _one.c.parked_id,
    ~_TAKEN_OF_THAT_SHARD,
    # what is not held for it lies before or behind what is, which may be any number of rows: each is one search
    ~exists().where(_UNTAKEN_OF_THAT_SHARD, _other.c.state < "held"),
    ~exists().where(_UNTAKEN_OF_THAT_SHARD, _other.c.state == "held", _other.c.held < _BECAUSE),
    ~exists().where(_UNTAKEN_OF_THAT_SHARD, _other.c.state == "held", _other.c.held > _BECAUSE),
)

#: The first lease of a shard.
FIRST_LEASE = insert_or_skip(order_shard)

#: Takes a lease that nobody has, or makes one's own longer.
TAKE_LEASE = (
    update(order_shard)
    .where(_SHARD, _MINE | (order_shard.c.lease_until <= _NOW))
    .values(lease_holder=bindparam("holder"), lease_until=bindparam("until", type_=UtcTime))
)

#: Ends one's own lease.
END_LEASE = update(order_shard).where(_SHARD, _MINE).values(lease_until=_NOW)

#: The leases of a target that have not run out.
LEASES = select(order_shard.c.shard, order_shard.c.lease_holder).where(
    order_shard.c.rule == bindparam("of_rule"),
    order_shard.c.target == bindparam("of_target"),
    order_shard.c.lease_until > _NOW,
)

_HELD_FOR = bindparam("microseconds", type_=BigInteger) - type_coerce(parked.c.held_since, BigInteger)

#: Makes due what of a shard waits behind its keys; the time it waited does not count towards its age.
RELEASE_SHARD = (
    update(parked)
    .where(
        _TARGET,
        UNTAKEN,
        parked.c.state == "held",
        parked.c.held == _BECAUSE,
        parked.c.order_shard == bindparam("of_shard", type_=Integer),
    )
    .values(
        state="due",
        due_at=_NOW,
        held="",
        held_since=None,
        held_seconds=parked.c.held_seconds + _HELD_FOR / 1_000_000.0,
        expires_at=type_coerce(parked.c.expires_at, BigInteger) + _HELD_FOR,
    )
)

#: Held rows of a rule whose deliveries may not be given up.
HELD_OF_RULE = (
    select(parked)
    .where(parked.c.rule == bindparam("of_rule"), WAITING, parked.c.order_shard.is_not(None), parked.c.held != "")
    .order_by(parked.c.parked_id)
)

#: Notes at a held row what a person said to it, and makes it due: the note stays, so that it is not held again.
MARK_HELD = (
    update(parked)
    .where(parked.c.parked_id == bindparam("of_row"), HELD, parked.c.held == _BECAUSE)
    .values(state="due", due_at=_NOW, held=bindparam("instead", type_=parked.c.held.type))
)
