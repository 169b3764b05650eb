"""Rule files in a bucket, published from there."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from typer.testing import CliRunner

from eventbridge.cli import app
from eventbridge.config.connection import connections_from_environment
from eventbridge.errors import RuleFileError, StoreError, UserError
from eventbridge.stages.operate.bucket_rules import load_bucket_rules
from eventbridge.store.open import open_store
from eventbridge.store.protocol import Store
from eventbridge.testing.s3 import S3Server

BUS = "buses: {orders: {source: {type: embedded, topics: [placed], queues: 2, start_at: earliest}}}\n"
RULE = "rules: {NAME: {bus: orders, pattern: {}, targets: {t: {type: file, path: /srv/NAME.jsonl}}}}\n"


class Prefix:
    """An empty prefix of a bucket, by the connection `lake`."""

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
    """As below a folder: what ends otherwise is no rule file."""
    prefix.put(buses=BUS, team__one=RULE.replace("NAME", "one"), team__two=RULE.replace("NAME", "two"))
    prefix.store.put("README.md", b"no rule")

    found = load_bucket_rules(prefix.uri, prefix.connections)

    assert sorted(found.rules) == ["one", "two"]


def test_mistakes_name_the_files_in_the_bucket(prefix: Prefix) -> None:
    """Not those of the copy that is read."""
    prefix.put(buses=BUS, team__one=RULE.replace("NAME", "one").replace("bus: orders", "bus: trains"))

    with pytest.raises(RuleFileError) as told:
        load_bucket_rules(prefix.uri, prefix.connections)

    (mistake,) = told.value.mistakes
    assert mistake.file == f"{prefix.uri}/team/one.yaml"
    assert "there is no bus 'trains'" in mistake.message


def test_what_cannot_be_read_removes_no_rule(prefix: Prefix, s3_server: S3Server) -> None:
    """No files, or a server that refuses: an error, no empty set."""
    with pytest.raises(UserError, match="No rule file lies below"):
        load_bucket_rules(prefix.uri, prefix.connections)
    prefix.put(buses=BUS)
    s3_server.refuse = lambda request: "AccessDenied"
    with pytest.raises(StoreError, match="access is denied"):
        load_bucket_rules(prefix.uri, prefix.connections)


def test_they_are_published_by_the_command_line(
    site: Any, prefix: Prefix, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every host goes by them then."""
    prefix.put(buses=BUS, one=RULE.replace("NAME", "one"))
    work = site.reopen(rules_from="published")
    monkeypatch.setenv("EVENTBRIDGE_HOME", str(work.settings.home))
    monkeypatch.setenv("EVENTBRIDGE_RULES_FROM", "published")
    monkeypatch.setenv("EVENTBRIDGE_CONN_LAKE", s3_server.connection)

    told = CliRunner().invoke(app, ["rules", "publish", "--rules", prefix.uri, "--json"])

    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["changed"] == ["one"]
    assert list(work.rule_set().rules) == ["one"]
