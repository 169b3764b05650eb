"""A rule author names the installation's own data as a target: no target writes into store, ledger, buses or rules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.errors import UserError
from eventbridge.rules.model import queue_of
from eventbridge.runtime.open import open_runtime
from eventbridge.targets.s3.fields import S3Fields

AWS = json.dumps({"conn_type": "aws", "login": "key", "password": "hunter2"})
OBJECTS = {"type": "s3", "connection": "other", "format": "jsonl"}
OWN_DATA = "is where EventBridge keeps its own data or rule files"


def environ_of(folder: Path, **settings: object) -> dict[str, str]:
    """Return the variables of an installation in a folder, of which file targets may write below all."""
    usual = {
        "HOME": folder / "home",
        "BUS_FOLDER": folder / "buses",
        "RULES_FOLDER": folder / "rules",
        "LEDGER_URL": f"sqlite:///{folder}/state/ledger.sqlite",
        "STORE_URI": f"file://{folder}/the%20store",
        "FILE_TARGET_FOLDERS": folder,
        "CONN_STORE": AWS,
        "CONN_OTHER": AWS,
    }
    (folder / "state").mkdir(exist_ok=True)
    return {f"EVENTBRIDGE_{name}": str(value) for name, value in (usual | settings).items()}


def write_rule(folder: Path, targets: dict[str, Any]) -> None:
    """Write a rule file, one target a line."""
    lines = "".join(f"      {name}: {json.dumps(target)}\n" for name, target in targets.items())
    (folder / "rules").mkdir(exist_ok=True)
    (folder / "rules" / "r.yaml").write_text(
        "buses: {b: {source: {type: embedded}}}\nrules:\n  leak:\n    bus: b\n    pattern: {}\n    targets:\n" + lines
    )


def refused(folder: Path, environ: dict[str, str], targets: dict[str, Any]) -> set[str]:
    """Return the targets that are refused when they are opened, and by the check of rules, which must be the same."""
    write_rule(folder, targets)
    found = dict[str, str]()
    with closing(open_runtime(Settings.from_mapping(environ), connections_from_environment(environ))) as runtime:
        destinations = runtime.rule_set().rules["leak"].destinations
        for name in targets:
            try:
                runtime.open_target("leak", destinations[name]).close()
            except UserError as error:
                found[name] = str(error)
    assert all(OWN_DATA in said and f"Target '{name}' of rule 'leak'" in said for name, said in found.items())
    command = [sys.executable, "-m", "eventbridge.cli", "rules", "check", "--json"]
    checked = subprocess.run(command, env=os.environ | environ, stdout=subprocess.PIPE, check=False)
    errors = json.loads(checked.stdout)["errors"]
    assert all(OWN_DATA in error["message"] for error in errors)
    assert {list(targets)[error["line"] - 7] for error in errors} == set(found)
    return set(found)


@pytest.mark.parametrize(
    ("location", "own", "free"),
    [
        (
            "s3://store@events/kept/here",
            ["kept/here", "kept/here/outcomes", "kept/here/a/b"],
            ["", "kept", "kept/here2", "kept/her", "outcomes"],
        ),
        ("s3://events/kept/", ["kept", "kept/x"], ["", "keptx"]),
        ("s3://store@events", ["", "kept", "outcomes/a"], []),
    ],
)
@pytest.mark.parametrize("connection", ["store", "other"])
def test_no_object_is_put_there(
    location: str, own: list[str], free: list[str], connection: str, tmp_path: Path
) -> None:
    """Whichever connection leads to the bucket, a target writes neither at the prefix nor below it."""
    targets = {
        f"t{number}": {**OBJECTS, "connection": connection, "bucket": "events"} | ({"prefix": prefix} if prefix else {})
        for number, prefix in enumerate(own + free)
    }
    targets["elsewhere"] = {**OBJECTS, "bucket": "events2", "prefix": own[0] or "kept"}
    environ = environ_of(tmp_path, STORE_URI=location)

    assert refused(tmp_path, environ, targets) == {f"t{number}" for number in range(len(own))}


def test_no_object_is_put_among_rule_files(tmp_path: Path) -> None:
    """Rule files may lie in a bucket too."""
    environ = environ_of(tmp_path, RULES_FOLDER="s3://store@events/rules")
    target = S3Fields(name="t", connection="other", bucket="events", prefix="rules/more")

    with closing(open_runtime(Settings.from_mapping(environ), connections_from_environment(environ))) as runtime:
        with pytest.raises(UserError, match=OWN_DATA):
            runtime.open_target("leak", target)
        runtime.open_target("leak", target.model_copy(update={"prefix": "more"})).close()


def test_no_line_is_appended_there(tmp_path: Path) -> None:
    """An operator allows a folder that is around the ledger, the buses, the store and the rule files."""
    own = [
        "home/rule_cache/x",
        "home/spark/conf/x",
        "buses/b.sqlite",
        "rules/more.yaml",
        "state/ledger.sqlite",
        "state/ledger.sqlite-wal",
        "the store/outcomes/x",
        "the store",
    ]
    free = [
        "x.jsonl",
        "homes/x.jsonl",
        "home.jsonl",
        "state/x.jsonl",
        "buses2/x",
        "the store.jsonl",
        "home/files/x.jsonl",
    ]
    targets = {f"t{number}": {"type": "file", "path": path} for number, path in enumerate(own + free)}

    assert refused(tmp_path, environ_of(tmp_path), targets) == {f"t{number}" for number in range(len(own))}


def test_a_folder_for_targets_within_an_own_folder_is_theirs(tmp_path: Path) -> None:
    """A home may lie below the rule files; whichever allowed folder is named first, and through whichever link."""
    (tmp_path / "link").symlink_to(tmp_path)
    home = tmp_path / "rules" / ".eventbridge"
    folders = f"{tmp_path}/link:{home}/files"
    environ = environ_of(tmp_path, HOME=home, FILE_TARGET_FOLDERS=folders)
    targets = {
        "theirs": {"type": "file", "path": f"{home}/files/x.jsonl"},
        "own": {"type": "file", "path": f"{tmp_path}/link/rules/x.jsonl"},
        "store": {"type": "file", "path": f"{tmp_path}/link/the store/x"},
    }

    assert refused(tmp_path, environ, targets) == {"own", "store"}


def test_an_installation_that_allows_every_folder_is_protected_too(tmp_path: Path) -> None:
    """The folder for targets is the root."""
    targets = {"own": {"type": "file", "path": f"{tmp_path}/buses/b.sqlite"}}

    assert refused(tmp_path, environ_of(tmp_path, FILE_TARGET_FOLDERS="/"), targets) == {"own"}


def test_a_dead_letter_queue_neither(tmp_path: Path) -> None:
    """A queue is opened and checked as a target is."""
    queue = {**OBJECTS, "bucket": "events", "prefix": "kept"}
    write_rule(tmp_path, {"fine": {"type": "file", "path": "x.jsonl", "dead_letter_queue": queue}})
    environ = environ_of(tmp_path, STORE_URI="s3://store@events/kept")

    with closing(open_runtime(Settings.from_mapping(environ), connections_from_environment(environ))) as runtime:
        found = runtime.rule_set().rules["leak"].destinations[queue_of("fine")]
        with pytest.raises(UserError, match=OWN_DATA):
            runtime.open_target("leak", found)
