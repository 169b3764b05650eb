"""Stores what concerns Airflow in the ledger: slots of pools, the watcher's last check, unpublished changes in Airflow,
and the positions of users' watchers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from eventbridge.ledger.database import Aggregate
from eventbridge.ledger.definitions import JsonText, UtcTime, insert_or_skip, metadata
from eventbridge.ledger.engines.protocol import LedgerEngine
from eventbridge.model.chunk import AppliedSlots
from eventbridge.model.partition import Partition, WatcherPosition
from eventbridge.model.stat import DroppedTotal

#: The slots that a rule file last set for a pool. They are not set again until the value in the file changes, so that
#: an operator's value stays. `seen_slots`: the slots that the pool had when Airflow was last queried.
pool_applied = sa.Table(
    "pool_applied",
    metadata,
    sa.Column("pool", sa.Text, primary_key=True),
    sa.Column("slots", sa.Integer, nullable=False),
    sa.Column("applied_at", UtcTime, nullable=False),
    sa.Column("seen_slots", sa.Integer, nullable=False),
    sa.Column("seen_at", UtcTime, nullable=False),
)

watcher = sa.Table(
    "watcher",
    metadata,
    sa.Column("singleton", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("checked_at", UtcTime, nullable=False),
    sa.CheckConstraint("singleton = 1", name="singleton"),
)

#: The changes in Airflow that all its processes together have dropped. Without a row there are none.
dropped_changes = sa.Table(
    "dropped_changes",
    metadata,
    sa.Column("singleton", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("dropped", sa.BigInteger, nullable=False),
    sa.Column("last_at", UtcTime, nullable=False),
    sa.CheckConstraint("singleton = 1", name="singleton"),
)

#: The positions of the watchers in users' DAGs; see `WatcherPosition`. `owner` is the trigger that may move a position;
#: an owner's name is never reused.
asset_watcher = sa.Table(
    "asset_watcher",
    metadata,
    sa.Column("asset", sa.Text, primary_key=True),
    sa.Column("bus", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("offsets", JsonText, nullable=False),
    sa.Column("identities", JsonText, nullable=False),
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("claimed", sa.BigInteger, nullable=False),
    sa.Column("claimed_at", UtcTime),
    sa.Column("moved_at", UtcTime, nullable=False),
)

_KEY = (
    asset_watcher.c.asset == sa.bindparam("of_asset"),
    asset_watcher.c.bus == sa.bindparam("of_bus"),
    asset_watcher.c.name == sa.bindparam("of_name"),
)
_OWNED = asset_watcher.c.owner == sa.bindparam("by")

#: Makes a trigger the owner of a watcher's position.
OWN_WATCHER = sa.update(asset_watcher).where(*_KEY).values(owner=sa.bindparam("by"))

#: Returns a watcher's position.
WATCHER_POSITION = sa.select(asset_watcher).where(*_KEY)

#: Records that the owner is about to send asset events to Airflow.
CLAIM_ASSET_EVENTS = (
    sa.update(asset_watcher)
    .where(*_KEY, _OWNED)
    .values(claimed=sa.bindparam("up_to"), claimed_at=sa.bindparam("now", type_=UtcTime))
)

#: Records the position of a watcher after asset events that Airflow has recorded.
MOVE_WATCHER = (
    sa.update(asset_watcher)
    .where(*_KEY, _OWNED)
    .values(
        offsets=sa.bindparam("to", type_=JsonText),
        identities=sa.bindparam("in_logs", type_=JsonText),
        sequence=sa.bindparam("recorded"),
        claimed=sa.bindparam("up_to"),
        moved_at=sa.bindparam("now", type_=UtcTime),
    )
)

#: Records the slots that a rule file set.
CHANGE_SLOTS = (
    sa.update(pool_applied)
    .where(pool_applied.c.pool == sa.bindparam("of_pool"), pool_applied.c.slots != sa.bindparam("to"))
    .values(slots=sa.bindparam("to"), applied_at=sa.bindparam("now"))
)

#: Records the slots seen in a pool.
SEE_SLOTS = (
    sa.update(pool_applied)
    .where(pool_applied.c.pool == sa.bindparam("of_pool"), pool_applied.c.seen_slots != sa.bindparam("seen"))
    .values(seen_slots=sa.bindparam("seen"), seen_at=sa.bindparam("now"))
)

#: Records a check.
RECORD_CHECK = sa.update(watcher).values(checked_at=sa.bindparam("now", type_=UtcTime))

#: Adds dropped changes.
COUNT_DROPPED = sa.update(dropped_changes).values(
    dropped=dropped_changes.c.dropped + sa.bindparam("more"), last_at=sa.bindparam("now", type_=UtcTime)
)

#: The dropped changes of all processes.
DROPPED_TOTAL = sa.select(dropped_changes.c.dropped, dropped_changes.c.last_at)

#: The time of the watcher's last check.
LAST_CHECK = sa.select(watcher.c.checked_at)


class Pools(Aggregate):
    """The slots of pools: those that rule files set, and those last seen in Airflow."""

    def applied_slots(self) -> dict[str, AppliedSlots]:
        """Return, by pool, the slots that rule files set and the slots last seen in Airflow."""
        rows = self._rows(sa.select(pool_applied).order_by(pool_applied.c.pool))
        return {row.pool: AppliedSlots(**row._mapping) for row in rows}

    def record_slots(self, pool: str, slots: int, seen: int) -> None:
        """Record the slots that a rule file set for a pool, and those it has now; writes no unchanged values."""
        now = self._now()
        row = {"pool": pool, "slots": slots, "applied_at": now, "seen_slots": seen, "seen_at": now}
        with self._writing() as connection:
            if connection.execute(insert_or_skip(pool_applied), row).rowcount == 0:
                connection.execute(CHANGE_SLOTS, {"of_pool": pool, "to": slots, "now": now})
                connection.execute(SEE_SLOTS, {"of_pool": pool, "seen": seen, "now": now})


class Watcher(Aggregate):
    """The time of the watcher's last check, which shows whether the watcher is alive."""

    def record_check(self) -> None:
        """Record that the watcher has checked every bus now."""
        now = self._now()
        with self._writing() as connection:
            if connection.execute(RECORD_CHECK, {"now": now}).rowcount == 0:
                connection.execute(insert_or_skip(watcher), {"singleton": 1, "checked_at": now})

    def last_check(self) -> datetime | None:
        """Return when the watcher last checked the buses; None if it never did."""
        with self._reading() as connection:
            return connection.execute(LAST_CHECK).scalar()


class DroppedChanges(Aggregate):
    """The number of changes in Airflow that its processes have dropped instead of publishing them."""

    def add(self, count: int) -> None:
        """Add changes that one process has dropped."""
        now = self._now()
        row = {"singleton": 1, "dropped": count, "last_at": now}
        with self._writing() as connection:
            if connection.execute(insert_or_skip(dropped_changes), row).rowcount == 0:
                connection.execute(COUNT_DROPPED, {"more": count, "now": now})

    def total(self) -> DroppedTotal | None:
        """Return how many changes were dropped, None if none ever was."""
        with self._reading() as connection:
            return dropped_total(connection)


def dropped_total(connection: sa.Connection) -> DroppedTotal | None:
    """Return how many changes in Airflow were dropped, None if none ever was."""
    row = connection.execute(DROPPED_TOTAL).first()
    return None if row is None else DroppedTotal(row.dropped, row.last_at)


class AssetWatchers(Aggregate):
    """The positions of the watchers in users' DAGs, each of which one trigger owns."""

    def own(self, owner: str, new: WatcherPosition) -> WatcherPosition:
        """Make `owner` the owner of a watcher's position, and return the position. If there is none, record `new`."""
        row = self._row(new) | {"owner": owner}
        with self._writing() as connection:
            connection.execute(insert_or_skip(asset_watcher), row)
            connection.execute(OWN_WATCHER, _key(new) | {"by": owner})
            found = connection.execute(WATCHER_POSITION, _key(new)).one()
        offsets = {Partition(*partition): offset for *partition, offset in found.offsets}
        return WatcherPosition(
            *(found.asset, found.bus, found.name, offsets, found.identities),
            *(found.sequence, found.claimed, found.claimed_at),
        )

    def claim(self, claims: Mapping[str, Sequence[WatcherPosition]]) -> set[str]:
        """Record, by owner, that asset events up to `claimed` are about to be sent to Airflow.

        Returns the owners that another trigger has replaced; they must send nothing.
        """
        replaced, now = set(), self._now()
        with self._writing() as connection:
            for owner, positions in claims.items():
                for each in positions:
                    values = _key(each) | {"by": owner, "up_to": each.claimed, "now": now}
                    if not connection.execute(CLAIM_ASSET_EVENTS, values).rowcount:
                        replaced.add(owner)
        return replaced

    def move(self, moves: Mapping[str, Sequence[WatcherPosition]]) -> None:
        """Record, by owner, the positions of watchers. The position of another owner does not change."""
        changes = []
        for owner, positions in moves.items():
            for each in positions:
                row = self._row(each)
                values = {"to": row["offsets"], "in_logs": row["identities"], "recorded": each.sequence}
                values |= {"up_to": each.claimed, "now": row["moved_at"], "by": owner}
                changes.append(_key(each) | values)
        if changes:
            self._change(MOVE_WATCHER, changes)

    def _row(self, position: WatcherPosition) -> dict[str, Any]:
        row = {name: getattr(position, name) for name in ("asset", "bus", "name", "sequence", "claimed", "claimed_at")}
        offsets = [[*partition, offset] for partition, offset in sorted(position.offsets.items())]
        return row | {"offsets": offsets, "identities": dict(position.identities), "moved_at": self._now()}


def _key(position: WatcherPosition) -> dict[str, str]:
    return {"of_asset": position.asset, "of_bus": position.bus, "of_name": position.name}


def last_check(engine: LedgerEngine, limit_seconds: float) -> datetime | None:
    """Return when the watcher of a ledger last checked the buses; None if it never did.

    It waits at most `limit_seconds`, reads only, and neither creates nor migrates a ledger. Raises FileNotFoundError if
    there is no ledger, and exceptions of SQLAlchemy if the database fails.
    """
    with engine.reader(limit_seconds).connect() as connection:
        return connection.execute(LAST_CHECK).scalar()
