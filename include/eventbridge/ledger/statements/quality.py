"""Statements about rules that are on hold after a failed expectation, and about the hours that were checked."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Select, bindparam, delete, select

from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.tables import expectation_hold, quality_check

#: The rules that are on hold.
EXPECTATION_HOLDS = select(expectation_hold).order_by(expectation_hold.c.rule)

#: Holds rules that are not on hold.
HOLD_BY_EXPECTATION = insert_or_skip(expectation_hold)

#: Releases a rule.
DROP_EXPECTATION_HOLD = delete(expectation_hold).where(expectation_hold.c.rule == bindparam("of_rule"))

#: Records the check of an hour, unless it was checked.
NOTE_QUALITY_CHECK = insert_or_skip(quality_check)


def quality_checks(limit: int, before: datetime | None) -> Select[tuple[object, ...]]:
    """Return the query for the checks of the latest hours, the latest first; `before`: of hours before one."""
    found = select(quality_check).order_by(quality_check.c.hour.desc()).limit(limit)
    return found if before is None else found.where(quality_check.c.hour < before)


#: The checks of some hours.
QUALITY_CHECKS_OF = select(quality_check).where(quality_check.c.hour.in_(bindparam("hours", expanding=True)))
