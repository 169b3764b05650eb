"""What every ledger must do, whatever database it is in: subclass LedgerContract and say how to open one.

`ledger` and `rival` are two openings of one ledger, as two processes have them: of two that do the same thing
one wins, the other gets False and has changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from contracts.ledger_api_contract import ApiContract
from contracts.ledger_batches_contract import BatchesContract
from contracts.ledger_chunks_contract import ChunksContract
from contracts.ledger_commits_contract import CommitsContract
from contracts.ledger_deferred_matches_contract import DeferredMatchesContract
from contracts.ledger_holding_contract import HoldingContract
from contracts.ledger_order_contract import OrderContract
from contracts.ledger_pending_contract import PendingContract
from contracts.ledger_queues_contract import QueuesContract
from contracts.ledger_redrives_contract import RedrivesContract
from contracts.ledger_replays_contract import ReplaysContract
from contracts.ledger_retention_contract import RetentionContract
from contracts.ledger_route_tries_contract import RouteTriesContract
from contracts.ledger_samples import Clock
from contracts.ledger_schemas_contract import SchemasContract
from contracts.ledger_stats_contract import StatsContract
from contracts.ledger_streaming_leases_contract import StreamingLeasesContract
from contracts.ledger_targets_contract import TargetsContract

from eventbridge.ledger import Ledger


class LedgerContract(
    ApiContract,
    BatchesContract,
    ChunksContract,
    CommitsContract,
    StatsContract,
    HoldingContract,
    OrderContract,
    PendingContract,
    QueuesContract,
    RedrivesContract,
    DeferredMatchesContract,
    ReplaysContract,
    RetentionContract,
    RouteTriesContract,
    SchemasContract,
    StreamingLeasesContract,
    TargetsContract,
):
    """All of the contract; a subclass gives the fixture `open_ledger`."""

    @pytest.fixture
    def clock(self) -> Clock:
        """Return the clock of both ledgers."""
        return Clock()

    @pytest.fixture
    def ledger(self, open_ledger: Callable[[Clock], Ledger], clock: Clock) -> Iterator[Ledger]:
        """Return an empty ledger."""
        opened = open_ledger(clock)
        yield opened
        opened.close()

    @pytest.fixture
    def rival(self, ledger: Ledger, open_ledger: Callable[[Clock], Ledger], clock: Clock) -> Iterator[Ledger]:
        """Return the same ledger, opened once more."""
        opened = open_ledger(clock)
        yield opened
        opened.close()
