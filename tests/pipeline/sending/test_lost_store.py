"""If a store's folder disappears while a process runs, nothing is written to a new one."""

from __future__ import annotations

import pytest
from pipeline.delivering import Sending

from eventbridge.errors import StoreError


def test_a_store_that_vanishes_is_not_created_again(sending: Sending) -> None:
    """A process that wrote to it writes into no new one, and continues once it is back."""
    sending.rules(crm="/healthy/crm")
    sending.publish(1)
    sending.deliver()
    store = sending.site.folder / "store"
    store.rename(store.with_name("away"))
    store.mkdir()

    with pytest.raises(StoreError, match="no longer exists, or is not the one"):
        sending.runtime.store.put("outcomes/a", b"")
    assert list(store.iterdir()) == []
    store.rmdir()
    with pytest.raises(StoreError, match="Restore or mount it"):
        sending.runtime.store.put("outcomes/a", b"")
    store.with_name("away").rename(store)
    sending.publish(1)
    sending.deliver()

    assert len(sending.requests()) == 2
