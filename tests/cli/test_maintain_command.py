"""`maintain` from the command line, and what other commands say of removed data."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eventbridge.config.settings import Settings
from eventbridge.runtime import open as runtime_open
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime


def test_nothing_is_removed_of_a_young_installation(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """It says so, and ends well."""
    result = eventbridge("maintain")

    assert (result.code, result.err) == (0, "")
    assert result.out == "0 files (0 orphaned) and 0 rows of the ledger removed. Nothing else is left to remove now.\n"


@pytest.fixture
def in_fifty_days(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Have the ledger's clock stand fifty days ahead for every command from now on."""
    opened = open_runtime

    def open_later(settings: Settings, connections: Any, *_: Any, **__: Any) -> Runtime:
        return opened(settings, connections, lambda: datetime.now(UTC) + timedelta(days=50))

    return lambda: monkeypatch.setattr(runtime_open, "open_runtime", open_later)


@pytest.fixture
def later(shop: Any, eventbridge: Callable[..., Any], in_fifty_days: Callable[[], None]) -> Any:
    """A shop that delivered two orders fifty days ago, but for a transform that failed."""
    assert eventbridge("events", "publish", "orders", shop.orders(500, 1500)).code == 0
    shop.deliver()
    in_fifty_days()
    return shop


def test_removed_data_is_reported(later: Any, eventbridge: Callable[..., Any]) -> None:
    """First with --dry-run, which changes nothing, then for good; the audit goes by the manifest then."""
    output = eventbridge("maintain", "--dry-run")
    assert "1 batch: archive would be removed\n" in output.out
    assert output.err == "Note: nothing was removed; run the command without --dry-run to remove the data\n"
    assert eventbridge("audit", "--json").json["pruned"] == 0

    done = eventbridge("maintain")

    assert "1 batch: deliveries, outcomes and settlement removed\n" in done.out
    assert "bus orders: " in done.out
    audited = eventbridge("audit")
    assert audited.code == 0
    assert "1 committed batch, 1 of them pruned (only the manifest is audited), 0 still open" in audited.out
    assert eventbridge("status", "--json").json["batches"][0]["kept"] == "dead_letters"


def test_expired_data_is_not_replayed_or_repaired(later: Any, eventbridge: Callable[..., Any]) -> None:
    """Either command says that it is past its retention, and what to do."""
    batch = eventbridge("status", "--json").json["batches"][0]["batch_id"]
    eventbridge("maintain")

    replayed = eventbridge("replays", "start", "orders", "--from", "60d", "--dry-run")
    repaired = eventbridge("batches", "repair", batch)

    assert (replayed.code, repaired.code) == (2, 2)
    assert "is past its retention and was removed. Choose a later start" in replayed.err
    assert "is past its retention, and some of its files were removed" in repaired.err


def test_old_data_that_is_kept_is_reported(
    delivered: Any, eventbridge: Callable[..., Any], in_fifty_days: Callable[[], None]
) -> None:
    """Of a batch whose deliveries wait, or are on hold, nothing goes, and the reason is given."""
    in_fifty_days()
    result = eventbridge("maintain")

    assert result.code == 0
    assert "past retention and kept, 1: it has pending deliveries or deferred matches\n" in result.out
    assert eventbridge("audit").code == 0
