"""`batches repair` from the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_a_batch_that_is_whole_needs_no_repair(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """It says so, by the beginning of the id, and writes nothing."""
    batch = eventbridge("status", "--json").json["batches"][0]["batch_id"]

    result = eventbridge("batches", "repair", batch[:9])

    assert result.code == 0
    found = "every file exists and is correct, and no delivery is settled twice"
    assert result.out == f"Batch {batch} needs no repair: {found}.\n"
    assert not (delivered.folder / "home" / "store" / "repairs").exists()


def test_a_delivery_file_of_a_committed_batch_is_routed_again(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """Pending deliveries still point at it: it is rebuilt at its place, recorded, and the audit agrees."""
    batch = eventbridge("status", "--json").json["batches"][0]["batch_id"]
    (path, *_) = (delivered.folder / "home" / "store" / "deliveries").rglob("*.parquet")
    path.unlink()
    assert eventbridge("audit").code == 1

    planned = eventbridge("batches", "repair", batch, "--dry-run")
    assert planned.code == 0
    assert "would be rebuilt: deliveries/" in planned.out
    assert planned.out.endswith(f"Batch {batch} would be repaired: 1 file rebuilt.\n")
    assert not path.exists()
    done = eventbridge("batches", "repair", batch, "--json").json

    assert path.exists()
    assert len(done["rebuilt"]) == 1
    assert (delivered.folder / "home" / "store" / done["record"]).exists()
    assert eventbridge("audit").code == 0


def test_an_unknown_batch_is_an_error(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """As for `audit`."""
    assert eventbridge("batches", "repair", "zzz").code == 2
