"""An installation that an older version made is opened by this one, which goes on where it stood."""

from __future__ import annotations

import json
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from upgrade.make import HERE, environment, orders, run, write_rules

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.routing.in_process import InProcessRouter
from eventbridge.rule import load_rules
from eventbridge.stages.dead_letters.selection import Selection
from eventbridge.stages.operate.audit import audit
from eventbridge.stages.operate.deliver import deliver_until_idle
from eventbridge.stages.operate.deliver_redrive import deliver_redrive
from eventbridge.stages.operate.enable import enable_target
from eventbridge.stages.redrive.plan import begin_redrive
from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.testing.receiver import Receiver

KEPT = sorted(HERE.glob("made_by_*.tar.xz"))


def later(runtime: Runtime) -> datetime:
    """Return the time two hours after the installation was made: its retries are due, and nothing is too old."""
    newest = runtime.ledger.latest_batch()
    assert newest is not None
    return newest.planned_at + timedelta(hours=2)


@contextmanager
def opened(folder: Path) -> Iterator[Runtime]:
    """Open the installation as this version does, at the time `later`, which goes on."""
    # before there were allowed folders a relative path counted from where a process was started
    given = environment(folder) | {"EVENTBRIDGE_FILE_TARGET_FOLDERS": str(folder)}
    runtime = Runtime.open(Settings.from_mapping(given), connections_from_environment(given))
    ahead = later(runtime) - datetime.now(UTC)
    runtime.close()

    def clock() -> datetime:
        return datetime.now(UTC) + ahead

    runtime = Runtime.open(Settings.from_mapping(given), connections_from_environment(given), clock)
    try:
        yield runtime
    finally:
        runtime.close()


def ids_by_customer(requests: list[dict[str, Any]], path: str) -> dict[str, list[int]]:
    """Return the amounts that a path received, as they came, by customer."""
    found = defaultdict(list)
    for request in requests:
        if request["path"] == path:
            data = json.loads(request["body"])["data"]
            found[data["customer"]].append(data["amount"])
    return found


@pytest.mark.parametrize("kept", KEPT, ids=[path.name.split(".")[0] for path in KEPT])
def test_an_older_installation_goes_on(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waited, was on hold, died or was not read yet is delivered, in order, by this version; all is reconciled."""
    with tarfile.open(kept) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    with Receiver(tmp_path / "received.jsonl", whole=True) as receiver:
        write_rules(tmp_path, {name: receiver.url(f"/healthy/{name}") for name in ("gone", "bad", "flaky")})
        assert "0 differences" in run(tmp_path, "audit")
        assert "disabled" in run(tmp_path, "targets", "list")

        with opened(tmp_path) as runtime:
            router = InProcessRouter(runtime.store)
            enable_target(runtime, "all-orders", "gone")
            redrive = begin_redrive(
                runtime, Selection(target="bad"), "upgrade", rate=None, retransform=False, again=False
            )
            deliver_redrive(runtime, redrive.redrive_id, router)
            deliver_until_idle(runtime, "orders", router)
            found = audit(runtime)

    assert found.differences == ()
    assert found.deliveries["all-orders/archive"]["delivered"] == 45
    assert len((tmp_path / "archive.jsonl").read_text().splitlines()) == 45
    requests = receiver.requests()
    everything = {f"c{customer}": list(range(customer, 45, 4)) for customer in range(4)}
    assert ids_by_customer(requests, "/healthy/flaky") == everything
    for name in ("gone", "bad"):
        taken = ids_by_customer(requests, f"/healthy/{name}")
        refused = {0} if name == "gone" else set()
        assert {each for amounts in taken.values() for each in amounts} >= set(range(45)) - refused
    assert "0 differences" in run(tmp_path, "audit")


@pytest.mark.parametrize("kept", KEPT, ids=[path.name.split(".")[0] for path in KEPT])
def test_files_that_an_older_version_wrote_are_made_again(kept: Path, tmp_path: Path) -> None:
    """Landed events, dead letters and manifest of a version, lost since the upgrade, are what they were."""
    with tarfile.open(kept) as archive:
        archive.extractall(tmp_path, filter="data")
    write_rules(tmp_path, {name: f"http://127.0.0.1:1/{name}" for name in ("gone", "bad", "flaky")})
    store = tmp_path / "home" / "store"
    (manifest,) = (store / "manifests").rglob("*.json")
    lost = [*(store / "buffer").rglob("*.parquet"), *(store / "dead_letters").rglob("*.parquet")]
    held = {path: pq.read_table(path) for path in lost}
    for path in (*lost, manifest):
        path.unlink()

    run(tmp_path, "batch", "repair", manifest.stem)

    assert len(held) == 3
    assert all(pq.read_table(path).equals(table) for path, table in held.items())
    assert "0 differences" in run(tmp_path, "audit")


def test_what_is_kept_is_what_was_made() -> None:
    """There is an installation of a version to open, and its orders are those that the test counts."""
    assert KEPT
    assert len(orders(0, 45).splitlines()) == 45


def test_rules_that_say_nothing_new_are_frozen_as_before(tmp_path: Path) -> None:
    """Byte for byte as 0.2.0 froze them: either version reads what the other wrote, and no rule counts as changed."""
    write_rules(tmp_path, {name: f"http://127.0.0.1:1/{name}" for name in ("gone", "bad", "flaky")})

    assert load_rules(tmp_path / "rules").to_json() == (HERE / "frozen_by_0_2_0.json").read_text()
