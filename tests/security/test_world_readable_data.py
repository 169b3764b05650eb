"""Another user of the host reads events, payloads and secrets: nothing that the product writes is open to others."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.loopback import now

from eventbridge.config.settings import Settings
from eventbridge.ledger import Ledger
from eventbridge.runtime.open import open_runtime
from eventbridge.sources.embedded.bus import EmbeddedBus
from eventbridge.store.file import FileStore

RULES = """
buses: {orders: {source: {type: embedded, start_at: earliest}}}
rules:
  all:
    bus: orders
    pattern: {}
    targets:
      log: {type: file, path: days/log.jsonl}
      lost: {type: http, url: "https://nobody.invalid/", retry: {policy: custom, max_retries: 0}}
"""
EVENT = '{"specversion":"1.0","id":"o1","source":"/shop","type":"placed","data":{"card":"4711"}}\n'


@pytest.fixture
def no_umask() -> Iterator[None]:
    """Let a process ask for every right, as some services do."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    """Return the mode of each file and folder below one that is open to more than its owner."""
    found = {}
    for path in (folder, *folder.rglob("*")):
        mode = path.stat(follow_symlinks=False).st_mode
        if mode & 0o077:
            found[str(path.relative_to(folder))] = stat.filemode(mode)
    return found


@pytest.mark.usefixtures("no_umask")
def test_an_installation_is_open_to_its_owner_only(tmp_path: Path) -> None:
    """What is kept, Spark's files and exports are closed; a target's file is for its group, below a closed home."""
    environ = {
        **os.environ,
        "EVENTBRIDGE_HOME": str(tmp_path / "home"),
        "EVENTBRIDGE_RULES_FOLDER": str(tmp_path / "rules"),
    }
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "orders.yaml").write_text(RULES)
    (tmp_path / "events.jsonl").write_text(EVENT)

    for call in (
        ["events", "publish", "orders", str(tmp_path / "events.jsonl")],
        ["deliver", "--runner", "orders", "--until-idle"],
        ["dead-letters", "export", str(tmp_path / "dead-letters.jsonl")],
        ["dead-letters", "export", str(tmp_path / "dead-letters.parquet")],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "eventbridge.cli", *call], env=environ, check=False, capture_output=True, timeout=300
        )
        assert done.returncode == 0, done.stderr.decode()

    open_to_more = modes(tmp_path / "home")
    target = {"files": "drwxr-x---", "files/days": "drwxr-x---", "files/days/log.jsonl": "-rw-r-----"}
    assert open_to_more == target
    assert [stat.filemode(each.stat().st_mode) for each in sorted(tmp_path.glob("dead-letters.*"))] == [
        "-rw-------"
    ] * 2


@pytest.mark.usefixtures("no_umask")
def test_a_home_that_an_earlier_version_left_open_is_closed(tmp_path: Path) -> None:
    """The home, and a ledger and a bus elsewhere, lose the rights of group and others when they are opened."""
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    settings = Settings.from_mapping({"EVENTBRIDGE_HOME": str(home), "EVENTBRIDGE_BUS_FOLDER": str(tmp_path / "bus")})
    with EmbeddedBus(tmp_path / "bus", "orders", clock=now):
        pass
    open_runtime(settings, lambda _: pytest.fail("no connection")).close()
    for each in (home, tmp_path / "bus" / "orders.sqlite", home / "ledger.sqlite"):
        each.chmod(0o777)

    with EmbeddedBus(tmp_path / "bus", "orders", clock=now):
        pass
    open_runtime(settings, lambda _: pytest.fail("no connection")).close()

    assert modes(home) == {}
    assert modes(tmp_path / "bus") == {}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_folder_that_is_shared_with_a_group_is_shared_below(tmp_path: Path, umask: int) -> None:
    """Users of one group work on one installation if its folder has mode 2770, whatever their umask; no others do."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o2770)
    before = os.umask(umask)
    try:
        FileStore(shared / "store").put("a/b/c.parquet", b"1")
        with EmbeddedBus(shared / "bus", "orders", clock=now):
            pass
        Ledger.open(f"sqlite:///{shared}/ledger.sqlite").close()
    finally:
        os.umask(before)

    found = {stat.filemode(each.stat().st_mode) for each in shared.rglob("*")}
    assert found == {"drwxrws---", "-rw-rw----"}


def test_a_folder_that_all_users_share_stays_as_it_is(tmp_path: Path) -> None:
    """A home that is /tmp or similar is not closed to its other users: its files are closed."""
    home = tmp_path / "tmp"
    home.mkdir()
    home.chmod(0o1777)

    open_runtime(Settings.from_mapping({"EVENTBRIDGE_HOME": str(home)}), lambda _: pytest.fail("no connection")).close()

    assert modes(home) == {".": "drwxrwxrwt"}
