"""The ledger's interface: every method is one transaction, and every change is a compare-and-set."""

from __future__ import annotations

from typing import Self

from eventbridge.ledger.api_tokens import ApiTokens
from eventbridge.ledger.assignments import Assignments
from eventbridge.ledger.batches import Batches
from eventbridge.ledger.chunks import Chunks
from eventbridge.ledger.commits import Commits
from eventbridge.ledger.database import Clock
from eventbridge.ledger.deadlines import Deadlines
from eventbridge.ledger.deferred_matches import DeferredMatches
from eventbridge.ledger.engines.registry import BUSY_TIMEOUT_SECONDS
from eventbridge.ledger.event_index import EventIndex
from eventbridge.ledger.inbox import Inbox
from eventbridge.ledger.ingestion import Ingestion
from eventbridge.ledger.kept_responses import KeptResponses
from eventbridge.ledger.moments import Moments
from eventbridge.ledger.offsets import Offsets
from eventbridge.ledger.operations import Operations
from eventbridge.ledger.operator_actions import OperatorActions
from eventbridge.ledger.order import Order
from eventbridge.ledger.overrides import Overrides
from eventbridge.ledger.pending import Pending
from eventbridge.ledger.pools import Pools
from eventbridge.ledger.publish_balances import PublishBalances
from eventbridge.ledger.quality import Quality
from eventbridge.ledger.redrives import Redrives
from eventbridge.ledger.replays import Replays
from eventbridge.ledger.retention import Retention
from eventbridge.ledger.revision import Revision
from eventbridge.ledger.route_tries import RouteTries
from eventbridge.ledger.rules import Rules
from eventbridge.ledger.run_again import runs_lost_transactions_again
from eventbridge.ledger.schemas import Schemas
from eventbridge.ledger.stats import Stats
from eventbridge.ledger.store_sizes import StoreSizes
from eventbridge.ledger.streaming_leases import StreamingLeases
from eventbridge.ledger.targets import Targets
from eventbridge.ledger.watcher import WatcherLooks


@runs_lost_transactions_again
class Ledger(
    Batches,
    Schemas,
    StreamingLeases,
    Inbox,
    Chunks,
    RouteTries,
    DeferredMatches,
    Redrives,
    Replays,
    Pending,
    Order,
    Commits,
    Offsets,
    Operations,
    Deadlines,
    WatcherLooks,
    Targets,
    Assignments,
    Overrides,
    OperatorActions,
    Pools,
    Rules,
    Retention,
    EventIndex,
    Stats,
    Quality,
    Ingestion,
    StoreSizes,
    ApiTokens,
    KeptResponses,
    PublishBalances,
    Moments,
    Revision,
):
    """The state of all runners.

    Times are aware and in UTC. A method that returns False has lost against another process and changed nothing.
    Every method raises LedgerError, with a remedy, if the database fails; nothing was changed then either
    (except after a failure during the commit: then the change is either complete or absent).
    """

    @classmethod
    def open(cls, url: str, clock: Clock | None = None, *, busy_timeout_seconds: float = BUSY_TIMEOUT_SECONDS) -> Self:
        """Open the ledger at a SQLAlchemy URL.

        In SQLite the tables are created or migrated first if they are not current; the folder must exist, the file need
        not. In PostgreSQL only `migrate` does that, and LedgerError names the command.
        Any number of processes may open one ledger at once.
        `clock` None: the database's clock, which all processes that open it share.
        `busy_timeout_seconds`: how long a transaction waits for another process's transaction.
        Raises LedgerError also for a ledger that a newer version has migrated, and for another program's database.
        """
        ledger = cls(url, clock, busy_timeout_seconds)
        try:
            ledger._bring_up_to_date()
        except BaseException:
            ledger.close()
            raise
        return ledger

    @classmethod
    def migrate(cls, url: str) -> tuple[str | None, str]:
        """Create or migrate the tables of a ledger; return the revisions before (None: no tables) and after.

        Several processes may call it at once. Raises LedgerError as `open` does.
        """
        ledger = cls(url)
        try:
            return ledger._migrate()
        finally:
            ledger.close()
