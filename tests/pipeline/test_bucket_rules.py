"""Rule files in a bucket are read, checked and published."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from demo.s3_server import S3Server
from typer.testing import CliRunner

from eventbridge.cli import app
from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.errors import RuleFileError, SettingsError, StoreError, UserError
from eventbridge.runtime.bucket_rules import load_rule_files
from eventbridge.store.open import open_store
from eventbridge.store.protocol import Store

BUS = "buses: {orders: {source: {type: embedded, topics: [placed], partitions: 2, start_at: earliest}}}\n"
RULE = "rules: {NAME: {bus: orders, pattern: {}, targets: {t: {type: file, path: /srv/NAME.jsonl}}}}\n"


class Prefix:
    """An empty prefix of the bucket of the connection `lake`."""

    def __init__(self, server: S3Server) -> None:
        self.connections = connections_from_environment({"EVENTBRIDGE_CONN_LAKE": server.connection})
        self.uri = f"s3://lake@tests/{uuid.uuid4().hex}"
        self.store: Store = open_store(self.uri, self.connections)

    def put(self, **files: str) -> None:
        for name, text in files.items():
            self.store.put(name.replace("__", "/") + ".yaml", text.encode())


@pytest.fixture
def prefix(s3_server: S3Server) -> Prefix:
    return Prefix(s3_server)


def test_files_of_all_folders_are_read(prefix: Prefix) -> None:
    """Files of all folders are read, and objects with other suffixes are ignored."""
    prefix.put(buses=BUS, team__one=RULE.replace("NAME", "one"), team__two=RULE.replace("NAME", "two"))
    prefix.store.put("README.md", b"no rule")

    found = load_rule_files(prefix.uri, prefix.connections)

    assert sorted(found.rules) == ["one", "two"]


def test_errors_name_the_files_in_the_bucket(prefix: Prefix) -> None:
    """Errors name the files in the bucket, not the local copies that are read."""
    prefix.put(buses=BUS, team__one=RULE.replace("NAME", "one").replace("bus: orders", "bus: trains"))

    with pytest.raises(RuleFileError) as reported:
        load_rule_files(prefix.uri, prefix.connections)

    (error,) = reported.value.errors
    assert error.file == f"{prefix.uri}/team/one.yaml"
    assert "there is no bus 'trains'" in error.message


def test_an_unreadable_bucket_removes_no_rule(prefix: Prefix, s3_server: S3Server) -> None:
    """A bucket without files, or a server that refuses, is an error and not an empty rule set."""
    with pytest.raises(UserError, match="There is no rule file below"):
        load_rule_files(prefix.uri, prefix.connections)
    prefix.put(buses=BUS)
    s3_server.refuse = lambda request: "AccessDenied"
    with pytest.raises(StoreError, match="access is denied"):
        load_rule_files(prefix.uri, prefix.connections)


def test_they_are_published_by_the_command_line(
    site: Any, prefix: Prefix, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `rules publish`, every host uses the rules of the bucket."""
    prefix.put(buses=BUS, one=RULE.replace("NAME", "one"))
    runtime = site.reopen(rules_from="published")
    monkeypatch.setenv("EVENTBRIDGE_HOME", str(runtime.settings.home))
    monkeypatch.setenv("EVENTBRIDGE_RULES_FROM", "published")
    monkeypatch.setenv("EVENTBRIDGE_CONN_LAKE", s3_server.connection)

    reported = CliRunner().invoke(app, ["rules", "publish", "--rules", prefix.uri, "--json"])

    assert reported.exit_code == 0, reported.output
    assert json.loads(reported.stdout)["changed"] == ["one"]
    assert list(runtime.rule_set().rules) == ["one"]


def test_the_folder_of_the_settings_may_be_a_bucket(prefix: Prefix) -> None:
    """With a bucket as rules folder, new batches use the published rules; using its files directly is rejected."""
    settings = Settings.from_mapping({"EVENTBRIDGE_RULES_FOLDER": prefix.uri})

    assert (settings.rules_folder, settings.rules_from) == (prefix.uri, "published")
    with pytest.raises(SettingsError, match="Set it to published, and run `eventbridge rules publish`"):
        Settings.from_mapping({"EVENTBRIDGE_RULES_FOLDER": prefix.uri, "EVENTBRIDGE_RULES_FROM": "files"})


def test_rules_of_the_bucket_are_checked(
    prefix: Prefix, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`rules check` names the file in the bucket."""
    prefix.put(buses=BUS, one=RULE.replace("NAME", "one").replace("bus: orders", "bus: trains"))
    monkeypatch.setenv("EVENTBRIDGE_HOME", str(tmp_path))
    monkeypatch.setenv("EVENTBRIDGE_RULES_FOLDER", prefix.uri)
    monkeypatch.setenv("EVENTBRIDGE_CONN_LAKE", s3_server.connection)

    with pytest.raises(RuleFileError, match=f"{prefix.uri}/one.yaml"):
        CliRunner().invoke(app, ["rules", "check"], catch_exceptions=False)


def test_one_process_publishes_what_changes_there(site: Any, prefix: Prefix, s3_server: S3Server) -> None:
    """With `--watch`, a change applies to every host; an error is reported, and the previous rules stay published."""
    prefix.put(buses=BUS, one=RULE.replace("NAME", "one"))
    runtime = site.reopen(rules_folder=prefix.uri, rules_from="published")
    environ = {
        **os.environ,
        "EVENTBRIDGE_HOME": str(runtime.settings.home),
        "EVENTBRIDGE_RULES_FOLDER": prefix.uri,
        "EVENTBRIDGE_CONN_LAKE": s3_server.connection,
    }
    command = [sys.executable, "-m", "eventbridge.cli", "rules", "publish", "--watch", "0.2"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environ, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert [process.stdout.readline() for _ in range(2)] == [
            "changed: one\n",
            "1 rule published, 1 changed or added, 0 removed. The next batch of each runner uses it.\n",
        ]
        assert list(runtime.rule_set().rules) == ["one"]

        prefix.put(two="rules: [")
        assert f"{prefix.uri}/two.yaml" in process.stderr.readline() + process.stderr.readline()
        assert list(runtime.rule_set().rules) == ["one"]

        prefix.put(two=RULE.replace("NAME", "two"))
        assert [process.stdout.readline() for _ in range(2)] == [
            "changed: two\n",
            "2 rules published, 1 changed or added, 0 removed. The next batch of each runner uses them.\n",
        ]
        assert sorted(runtime.rule_set().rules) == ["one", "two"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
