"""Statements about figures: adding them up, folding them into longer times, reading them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, Text, bindparam, delete, func, literal, select, tuple_

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.figure_table import SUMS, figure
from eventbridge.ledger.statements.inserts import insert_or_add

_c = figure.c

#: Adds figures to what is there of their keys.
ADD_FIGURES = insert_or_add(figure, SUMS)

_NAMES = (_c.bus, _c.rule, _c.target, _c.outcome)
_AT = (_c.scope == bindparam("of_scope")) & (_c.grain == bindparam("of_grain")) & (_c.at == bindparam("of_at"))
_OLD = _AT & (tuple_(*_NAMES) <= tuple_(*(bindparam(f"to_{each.name}", type_=Text) for each in _NAMES)))

#: The oldest time of a scope and grain.
OLDEST = select(func.min(_c.at)).where(_c.scope == bindparam("of_scope"), _c.grain == bindparam("of_grain"))

#: The first rows of one time.
FIRST_ROWS = select(*_NAMES).where(_AT).order_by(*_NAMES).limit(bindparam("most"))

#: Adds the figures of one time, up to a row, to a longer one that holds it.
FOLD = insert_or_add(
    figure,
    SUMS,
    select(
        _c.scope,
        bindparam("to_grain", type_=Text),
        bindparam("to_at", type_=UtcTime),
        *(_c[name] for name in ("bus", "rule", "target", "outcome", *SUMS)),
    ).where(_OLD),
)

#: Drops the figures of one time, up to a row.
DROP_FOLDED = delete(figure).where(_OLD)

#: How many rows a scope has.
ROWS = select(func.count()).select_from(figure).where(_c.scope == bindparam("of_scope"))


def summed(scope: str, by: tuple[str, ...], *, ranged: bool = False) -> Select[Any]:
    """Return the query for the sums of a scope by some columns; `ranged`: only from `since` to before `until`."""
    names = [_c[name] for name in by]
    found = select(*names, *(func.sum(_c[name]).label(name) for name in SUMS)).where(_c.scope == literal(scope))
    if ranged:
        found = found.where(
            _c.at >= bindparam("since", type_=UtcTime),
            _c.at < bindparam("until", type_=UtcTime),
            _c.grain != literal("ever"),
        )
    return found.group_by(*names).order_by(*names)
