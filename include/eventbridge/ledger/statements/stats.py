"""Statements about stats: adding them up, folding them into longer periods, reading them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Select, Text, bindparam, delete, func, literal, select, tuple_, type_coerce

from eventbridge.ledger.columns import UtcTime, microseconds
from eventbridge.ledger.stat_table import SUMS, stat
from eventbridge.ledger.statements.inserts import insert_or_add
from eventbridge.ledger.tables import batch, batch_range

_c = stat.c

#: Adds stats to the existing rows of their keys.
ADD_STATS = insert_or_add(stat, SUMS)

_NAMES = (_c.bus, _c.rule, _c.target, _c.outcome)
_AT = (_c.scope == bindparam("of_scope")) & (_c.grain == bindparam("of_grain")) & (_c.at == bindparam("of_at"))
_OLD = _AT & (tuple_(*_NAMES) <= tuple_(*(bindparam(f"to_{each.name}", type_=Text) for each in _NAMES)))

#: The oldest period of a scope and grain.
OLDEST = select(func.min(_c.at)).where(_c.scope == bindparam("of_scope"), _c.grain == bindparam("of_grain"))

#: The first rows of one period.
FIRST_ROWS = select(*_NAMES).where(_AT).order_by(*_NAMES).limit(bindparam("most"))

#: Adds the stats of one period, up to a row, to a longer period that holds it.
FOLD = insert_or_add(
    stat,
    SUMS,
    select(
        _c.scope,
        bindparam("to_grain", type_=Text),
        bindparam("to_at", type_=UtcTime),
        *(_c[name] for name in ("bus", "rule", "target", "outcome", *SUMS)),
    ).where(_OLD),
)

#: Deletes the stats of one period, up to a row.
DROP_FOLDED = delete(stat).where(_OLD)

#: How many rows a scope has.
ROWS = select(func.count()).select_from(stat).where(_c.scope == bindparam("of_scope"))

_DAY = 86_400_000_000

#: Stats of targets, from `since` to before `until`.
_OF_TARGETS = (
    _c.scope == literal("target"),
    _c.at >= bindparam("since", type_=UtcTime),
    _c.at < bindparam("until", type_=UtcTime),
    _c.grain.in_(["minute", "hour", "day"]),
)

#: The names of the first rules after one that have stats in a period.
RULES_BEHIND = (
    select(_c.rule)
    .distinct()
    .where(*_OF_TARGETS, _c.rule > bindparam("after"))
    .order_by(_c.rule)
    .limit(bindparam("most"))
)

_SUMMED = tuple(func.sum(_c[name]).label(name) for name in SUMS)
_OF_DAY = ("day", _c.bus, _c.rule, _c.outcome)

#: The sums of the rules from `first` to `last` by day, counted from 1970 on, by bus and by outcome.
BY_DAY = (
    select((type_coerce(_c.at, BigInteger) // _DAY).label("day"), *_OF_DAY[1:], *_SUMMED)
    .where(*_OF_TARGETS, _c.rule >= bindparam("first"), _c.rule <= bindparam("last"))
    .group_by(*_OF_DAY)
    .order_by(*_OF_DAY)
)


def summed(scope: str, by: tuple[str, ...], *, ranged: bool = False) -> Select[Any]:
    """Return the query for the sums of a scope by some columns; `ranged`: only from `since` to before `until`."""
    names = [_c[name] for name in by]
    found = select(*names, *_SUMMED).where(_c.scope == literal(scope))
    if ranged:
        found = found.where(
            _c.at >= bindparam("since", type_=UtcTime),
            _c.at < bindparam("until", type_=UtcTime),
            _c.grain != literal("ever"),
        )
    return found.group_by(*names).order_by(*names)


def timeline(scope: str, times: Sequence[datetime], step: int, rule: tuple[str, str] | None) -> Select[Any]:
    """Return the query for the sums of a scope by step of so many microseconds from the first time on, and outcome.

    `rule`: a bus and a rule, then by target too. It is looked up at each time, so that others cost nothing.
    """
    first = microseconds(times[0])
    slot = ((type_coerce(_c.at, BigInteger) - first) // step).label("slot")
    by = ("slot", _c.target, _c.outcome)  # the label: PostgreSQL treats two expressions with parameters as different
    found = select(slot, *by[1:], *_SUMMED)
    found = found.where(_c.scope == literal(scope), _c.grain.in_(["minute", "hour"]))
    if rule is None:
        found = found.where(_c.at >= times[0], _c.at <= times[-1])
    else:
        found = found.where(_c.at.in_(times), _c.bus == rule[0], _c.rule == rule[1])
    return found.group_by(*by).order_by(*by)


def outcomes(times: Sequence[datetime], buses: Sequence[str], rules: Sequence[str]) -> Select[Any]:
    """Return the query for the counts of deliveries of some rules at some minutes, by rule and outcome.

    Each rule is looked up at each time, so that others cost nothing.
    """
    found = select(_c.rule, _c.outcome, func.sum(_c.count).label("deliveries")).where(
        _c.scope == literal("target"),
        _c.grain.in_(["minute", "hour"]),
        _c.at.in_(times),
        _c.bus.in_(buses),
        _c.rule.in_(rules),
    )
    return found.group_by(_c.rule, _c.outcome)


def of_rule(times: Sequence[datetime]) -> Select[Any]:
    """Return the query for the stats of a rule's targets that begin at some times, of any length.

    Each time is looked up, so that other rules cost nothing.
    """
    by = (_c.grain, _c.at, *_NAMES)
    found = select(*by, *(_c[name] for name in SUMS)).where(
        _c.scope == literal("target"),
        _c.grain.in_(["minute", "hour", "day"]),
        _c.at.in_(times),
        _c.bus == bindparam("of_bus"),
        _c.rule == bindparam("of_rule"),
    )
    return found.order_by(*by)


#: Events that normal batches moved offsets over, of those committed from a time on; `planned`: planned from then on.
MOVED_SINCE = (
    select(func.coalesce(func.sum(batch_range.c.end_offset - batch_range.c.start_offset), 0))
    .join(batch, batch.c.batch_id == batch_range.c.batch_id)
    .where(
        batch.c.planned_at >= bindparam("planned", type_=UtcTime),
        batch.c.committed_at >= bindparam("since", type_=UtcTime),
        batch.c.kind == literal("normal"),
    )
)
