"""A restored ledger and store are compared before anything starts."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.conftest import Result, Shop

Run = Callable[..., Result]

#: A target that nobody listens at, whose deliveries wait an hour for their retry.
WAITING = """
      gone:
        type: http
        url: http://127.0.0.1:1/
        allow_http: true
        retry: {policy: custom, max_retries: 3, initial_delay: 1h, multiplier: 1, max_delay: 1h}
"""


@pytest.fixture
def home(shop: Shop, eventbridge: Run) -> Path:
    """The folder of an installation that has delivered, and has deliveries that wait for a retry."""
    shop.write_rules(more=WAITING)
    assert eventbridge("events", "publish", "orders", shop.orders(500, 1500)).code == 0
    shop.deliver()
    return shop.folder / "home"


def deliver_more(shop: Shop, eventbridge: Run) -> None:
    assert eventbridge("events", "publish", "orders", shop.orders(700, id="later")).code == 0
    shop.deliver()


def restored(folder: Path, copy: Path) -> None:
    """Put a copy of a folder back in its place."""
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)


def test_a_ledger_and_its_store_belong_together(home: Path, shop: Shop, eventbridge: Run) -> None:
    """The check changes nothing and exits with 0, also after both were restored from one backup."""
    backup = shop.folder / "backup"
    shutil.copytree(home, backup)
    deliver_more(shop, eventbridge)
    restored(home, backup)
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*") if "ledger" not in path.name}

    text, found = eventbridge("backup", "check"), eventbridge("backup", "check", "-o", "json")

    assert (text.code, found.code, found.json["status"], found.json["examples"]) == (0, 0, "together", [])
    assert text.out.splitlines()[-1] == "Ledger and store belong together."
    assert {path: path.stat().st_mtime_ns for path in home.rglob("*") if "ledger" not in path.name} == before


def test_a_ledger_that_is_older_than_the_store_is_found(home: Path, shop: Shop, eventbridge: Run) -> None:
    """The manifest of a later batch, which the ledger does not have, is named."""
    backup = shop.folder / "backup"
    shutil.copytree(home, backup, ignore=shutil.ignore_patterns("store"))
    deliver_more(shop, eventbridge)
    for file in backup.glob("ledger*"):
        shutil.copy(file, home)

    text, found = eventbridge("backup", "check"), eventbridge("backup", "check", "-o", "json")

    assert (text.code, found.json["status"], found.json["unknown_manifests"]) == (1, "ledger_older", 1)
    assert [(home / "store" / path).exists() for path in found.json["examples"]] == [True]
    assert "1 manifest of the store with no batch in the ledger" in text.out
    assert text.out.splitlines()[-1].startswith("The ledger is older than the store, or was lost")


def test_a_store_that_is_older_than_the_ledger_is_found(home: Path, shop: Shop, eventbridge: Run) -> None:
    """The manifest of a later batch is missing, and so are the files of deliveries that wait for a retry."""
    backup = shop.folder / "backup"
    shutil.copytree(home / "store", backup)
    deliver_more(shop, eventbridge)
    restored(home / "store", backup)

    text, found = eventbridge("backup", "check"), eventbridge("backup", "check", "-o", "json")

    assert (text.code, found.json["status"]) == (1, "store_older")
    assert (found.json["missing_manifests"], found.json["missing_files"]) == (1, 1)
    assert {path.partition("/")[0] for path in found.json["examples"]} == {"manifests", "deliveries"}
    assert "1 batch of the ledger with no manifest in the store" in text.out
    assert text.out.splitlines()[-1].startswith("The store is older than the ledger, or lost files")


def test_the_store_of_another_installation_is_found(home: Path, shop: Shop, eventbridge: Run) -> None:
    """The store names the ledger of its runners."""
    first = shop.folder / "first"
    home.rename(first)
    deliver_more(shop, eventbridge)
    restored(home / "store", first / "store")

    found = eventbridge("backup", "check", "-o", "json")

    assert (found.code, found.json["status"], len(found.json["other_ledgers"])) == (1, "apart", 1)
    assert found.json["ledger"] not in found.json["other_ledgers"]


def test_a_check_without_a_ledger_is_refused(shop: Shop, eventbridge: Run) -> None:
    """An empty ledger is not made, because it would belong to any store."""
    found = eventbridge("backup", "check")

    assert found.code == 2
    assert "there is no ledger at" in found.err
    assert not (shop.folder / "home" / "ledger.sqlite").exists()
