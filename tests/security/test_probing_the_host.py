"""A caller of the API or of a task probes the host: neither files nor their names are revealed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from api.server import Server

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.control.backtest import read_candidate
from eventbridge.errors import RuleFileError, UserError
from eventbridge.rules.load import load_rules
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime

SECRET = "hunter2"
#: Files of a host that are no rule files, each with a secret at every place that an error could quote.
OTHERS = {
    "passwords": f"root:{SECRET}:19000:0:99999:7:::\n{SECRET}:x\n",
    "keys of another program": f"apiVersion: v1\nusers: [{SECRET}]\n{SECRET}: 1\n{SECRET}: 2\n",
    "an anchor": f"a: &{SECRET} 1\nb: *{SECRET}\n!{SECRET} c: 2\n",
    "no YAML": f'{SECRET}: "{SECRET}\n@{SECRET}',
    "a key file": f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n",
    "a variable": f"PASSWORD={SECRET}\nTOKEN: {SECRET}\n",
    "no mapping": f"- {SECRET}\n- &{SECRET} 1\n",
    "nothing but text": SECRET,
    "a nested rule file": f"{SECRET}:\n  rules: {SECRET}\n@{SECRET}",
}


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    """An installation with a rule `big`."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "r.yaml").write_text(
        "buses: {orders: {source: {type: embedded}}}\n"
        "rules: {big: {bus: orders, pattern: {}, targets: {log: {type: file, path: x.jsonl}}}}\n"
    )
    environ = {"EVENTBRIDGE_HOME": str(tmp_path / "home"), "EVENTBRIDGE_RULES_FOLDER": str(tmp_path / "rules")}
    opened = open_runtime(Settings.from_mapping(environ), connections_from_environment({}))
    yield opened
    opened.close()


@pytest.mark.parametrize(
    "name", ["/etc/shadow", "/etc/hostname", "../x.yaml", "rules/r.yaml", "{folder}/rules/r.yaml", "nowhere.yml", "a/b"]
)
def test_a_candidate_that_is_a_path_is_not_read(runtime: Runtime, tmp_path: Path, name: str) -> None:
    """Airflow's forms and the API take names and pasted text; an existing and a missing file get the same response."""
    with pytest.raises(UserError, match=r"is not the name of a rule\. Write a name, RULE@VERSION, or the text"):
        read_candidate(runtime, name.format(folder=tmp_path))


def test_a_candidate_may_be_a_name_or_a_text(runtime: Runtime, tmp_path: Path) -> None:
    """The limits that remain for callers without the right to read files of the host."""
    text = (tmp_path / "rules" / "r.yaml").read_text().split("\n", 1)[1]

    assert list(read_candidate(runtime, "big").rules.rules) == ["big"]
    assert list(read_candidate(runtime, text).rules.rules) == ["big"]


@pytest.mark.parametrize("name", ["/etc/shadow", "/etc/hostname", "x/y"])
def test_the_command_line_reads_rule_files_only(runtime: Runtime, name: str) -> None:
    """A path that does not end in .yaml or .yml is not opened."""
    with pytest.raises(UserError, match=r"the path of a rule file, which ends in \.yaml"):
        read_candidate(runtime, name, paths=True)


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("way", ["path", "link in the folder"])
def test_nothing_is_quoted_of_a_file_that_is_no_rule_file(
    runtime: Runtime, tmp_path: Path, kind: str, way: str
) -> None:
    """No key, value or line of it is in an error, whether it is named or linked to; the error says what it is."""
    file = tmp_path / "other.yaml"
    file.write_text(OTHERS[kind])
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "x.yaml").symlink_to(file)
    reads: dict[str, Callable[[], object]] = {
        "path": lambda: read_candidate(runtime, str(file), paths=True),
        "link in the folder": lambda: load_rules(tmp_path / "linked"),
    }

    with pytest.raises(UserError) as caught:
        reads[way]()

    reported = str(caught.value)
    assert SECRET not in reported
    assert "PRIVATE" not in reported
    assert "apiVersion" not in reported
    assert "rule file" in reported


def test_a_misspelt_rule_file_is_reported_what_is_wrong(runtime: Runtime, tmp_path: Path) -> None:
    """A field that is nearly one of a rule file makes the file one: its errors are reported in full."""
    file = tmp_path / "mine.yaml"
    file.write_text("rule: {}\nbuses: {}\n")

    with pytest.raises(RuleFileError, match=r"unknown field 'rule' of a rule file\. Did you mean rules\?"):
        read_candidate(runtime, str(file), paths=True)


def test_checking_a_text_does_not_reveal_which_paths_exist(server: Server, tmp_path: Path) -> None:
    """`POST /rules/check` responds alike to the path of a file, of a folder, of a link, and of nothing."""
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe")
    archive = server.installation.folder / "archive.jsonl"
    archive.mkdir()
    paths = [*(tmp_path / name for name in ("file", "folder", "link", "pipe", "nothing")), archive]
    paths += [
        Path(each) for each in ("/etc/shadow", "/etc/nothing", "/etc/ssh/ssh_host_rsa_key", "/proc/1/environ", "a/b")
    ]
    with server.client(server.installation.token("prober", "read")) as client:
        responses = [checked(client, {"type": "file", "path": str(path)}, str(path)) for path in paths]

    assert len({json.dumps(each) for each in responses}) == 1, responses


def checked(client: httpx.Client, target: dict[str, Any], shown: str) -> Any:
    """Return the response to a rule with that target, without its path."""
    rule = {"bus": "orders", "pattern": {}, "targets": {"log": target}}
    call = {"file": "mine.yaml", "content": json.dumps({"rules": {"mine": rule}})}
    response = client.post("/v1/rules/check", json=call)
    found = response.json()
    found.pop("rule_set", None)
    return response.status_code, json.loads(json.dumps(found).replace(json.dumps(shown)[1:-1], "PATH"))
