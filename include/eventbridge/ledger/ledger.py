"""Opens the ledger, which is one database, as an object with an attribute for each kind of record."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from eventbridge.ledger import revision
from eventbridge.ledger.airflow import AssetWatchers, DroppedChanges, Pools, Watcher
from eventbridge.ledger.api import Actions, PublishBalances, Responses, Tokens
from eventbridge.ledger.archive import Archive, EventIndex
from eventbridge.ledger.assignments import Assignments
from eventbridge.ledger.batches import Batches
from eventbridge.ledger.chunks import Chunks
from eventbridge.ledger.database import Clock, Database, runs_lost_transactions_again
from eventbridge.ledger.due import Due
from eventbridge.ledger.engines.registry import BUSY_TIMEOUT_SECONDS
from eventbridge.ledger.files import Files
from eventbridge.ledger.inbox import Inbox
from eventbridge.ledger.offsets import Offsets
from eventbridge.ledger.operational_events import OperationalEvents
from eventbridge.ledger.order import Order
from eventbridge.ledger.overrides import Overrides
from eventbridge.ledger.pending import Pending
from eventbridge.ledger.quality import Quality
from eventbridge.ledger.queues import Queues
from eventbridge.ledger.redrives import Redrives
from eventbridge.ledger.remedies import ledger_errors
from eventbridge.ledger.replays import Replays
from eventbridge.ledger.retention import Retention
from eventbridge.ledger.routing import DeferredMatches, RouteTries
from eventbridge.ledger.rules import Rules
from eventbridge.ledger.schemas import Schemas
from eventbridge.ledger.settlement import Settlement
from eventbridge.ledger.snapshots import Snapshots
from eventbridge.ledger.stats import Stats
from eventbridge.ledger.store import Ingestion, StoreSizes
from eventbridge.ledger.streaming import Streaming
from eventbridge.ledger.targets import Targets


class Ledger:
    """The state of all runners.

    A method of an attribute is one transaction, unless its docstring mentions several. A change that depends on the
    current state is a compare-and-set: if another process was faster, the method changes nothing and returns False.
    Times are aware and in UTC. Every method raises LedgerError, with a remedy, if the database fails. In that case its
    transaction has changed nothing, unless the commit itself failed; the change is then either complete or absent.
    """

    def __init__(
        self, url: str, clock: Clock | None = None, busy_timeout_seconds: float = BUSY_TIMEOUT_SECONDS
    ) -> None:
        self.database = database = Database(url, clock, busy_timeout_seconds)
        # A batch, from its plan to its commit.
        self.batches = Batches(database)
        self.files = Files(database)
        self.schemas = Schemas(database)
        self.route_tries = RouteTries(database)
        self.deferred_matches = DeferredMatches(database)
        self.chunks = Chunks(database)
        self.settlement = Settlement(database)
        self.offsets = Offsets(database)
        self.streaming = Streaming(database)
        self.inbox = Inbox(database)
        # Pending deliveries, and their targets.
        self.pending = Pending(database)
        self.due = Due(database)
        self.order = Order(database)
        self.queues = Queues(database)
        self.targets = Targets(database)
        # Rules, and records that change their effect.
        self.rules = Rules(database)
        self.assignments = Assignments(database)
        self.overrides = Overrides(database)
        self.quality = Quality(database)
        self.ingestion = Ingestion(database)
        # Redrives and replays, the archive, and retention.
        self.redrives = Redrives(database)
        self.replays = Replays(database)
        self.archive = Archive(database)
        self.event_index = EventIndex(database)
        self.retention = Retention(database)
        self.store_sizes = StoreSizes(database)
        # Records for views, the API and Airflow.
        self.stats = Stats(database)
        self.snapshots = Snapshots(database)
        self.operational_events = OperationalEvents(database)
        self.pools = Pools(database)
        self.watcher = Watcher(database)
        self.dropped_changes = DroppedChanges(database)
        self.asset_watchers = AssetWatchers(database)
        self.tokens = Tokens(database)
        self.responses = Responses(database)
        self.publish_balances = PublishBalances(database)
        self.actions = Actions(database)

    @classmethod
    def open(cls, url: str, clock: Clock | None = None, *, busy_timeout_seconds: float = BUSY_TIMEOUT_SECONDS) -> Self:
        """Open the ledger at a SQLAlchemy URL.

        With SQLite, the tables are created or migrated first if they are not current; the folder must exist, but the
        file need not. With PostgreSQL, only `migrate` does that, and LedgerError names the command.
        Any number of processes may have one ledger open at the same time.
        `clock` defaults to the database's clock, which all its processes share.
        `busy_timeout_seconds`: how long a transaction waits for another process's transaction.
        Also raises LedgerError for another program's database, and for a ledger that a newer version has migrated,
        unless that is in PostgreSQL and this version can still use it.
        """
        ledger = cls(url, clock, busy_timeout_seconds)
        try:
            revision.bring_up_to_date(ledger.database)
        except BaseException:
            ledger.close()
            raise
        return ledger

    @staticmethod
    def migrate(url: str) -> tuple[str | None, str]:
        """Create or migrate the tables of a ledger; return the revisions before (None without tables) and after.

        Several processes may call it at the same time. Raises LedgerError for the same databases as `open`.
        """
        database = Database(url)
        try:
            return revision.migrate(database)
        finally:
            database.close()

    @property
    @runs_lost_transactions_again
    def id(self) -> str:
        """Return the UUID that this ledger got when it was created."""
        with self.database.reading() as connection:
            return str(connection.execute(revision.LEDGER_ID).scalar_one())

    def now(self) -> datetime:
        """Return the time of the ledger's clock, to which leases, due times and deadlines are compared."""
        return self.database.now()

    def drop_old_pages(self) -> None:
        """Rewrite the database, so that no byte of changed or deleted rows is left. Raises UserError, LedgerError."""
        with ledger_errors(self.database.engine):
            self.database.engine.drop_old_pages()

    def close(self) -> None:
        """Close the connection to the database; a later call opens it again."""
        self.database.close()
