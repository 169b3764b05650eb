"""A process that evaluates what users wrote, or that needs no secret, has none of its parent's environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from demo.receiver import Receiver

from eventbridge.processes import child_environment
from eventbridge.spark.environment import require_java
from eventbridge.store import sql_sandbox
from eventbridge.transform.jsonata.process import Evaluator

SECRET = "hush-hush-4711"
#: Variables of an operator that hold secrets; the last has an ordinary name.
VARIABLES = ("EVENTBRIDGE_CONN_CRM", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "PGPASSWORD", "MY_APP")


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put secrets into the environment of this process."""
    for name in VARIABLES:
        monkeypatch.setenv(name, SECRET)


@contextmanager
def evaluating_jsonata(_: Path) -> Iterator[None]:
    """Have a process that has evaluated an expression."""
    with closing(Evaluator()) as evaluator:
        assert evaluator.ask(b"1 + 1", b"[]", b"{}").payload
        yield


@contextmanager
def asking_duckdb(_: Path) -> Iterator[None]:
    """Have a process that has run SQL: a new one, as none waits for a question."""
    sql_sandbox.children.end_idle()
    with sql_sandbox.database() as database:
        database.fill("CREATE TABLE t AS SELECT * FROM part", pa.table({"x": [1]}))
        assert database.ask(["SELECT x FROM t"])
        yield
    sql_sandbox.children.end_idle()


@contextmanager
def receiving(folder: Path) -> Iterator[None]:
    """Have a test receiver."""
    with Receiver(folder / "log.jsonl"):
        yield


def children() -> set[int]:
    """Return the process ids of this process's children."""
    tasks = Path("/proc/self/task").iterdir()
    return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}


@pytest.mark.parametrize("start", [evaluating_jsonata, asking_duckdb, receiving])
def test_a_child_process_has_no_secret(start: Callable[[Path], AbstractContextManager[None]], tmp_path: Path) -> None:
    """/proc/<pid>/environ of the child holds none of the secrets of its parent."""
    before = children()
    with start(tmp_path):
        [child] = children() - before
        environ = Path(f"/proc/{child}/environ").read_bytes()

    assert SECRET.encode() not in environ
    names = {each.partition(b"=")[0].decode() for each in environ.split(b"\0") if each}
    assert not names & set(VARIABLES)


def test_java_is_asked_for_its_version_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program that JAVA_HOME names gets no secret when it only reports its version."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\nenv > {tmp_path}/environ\necho 'openjdk version \"17.0.1\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    require_java()

    assert SECRET not in (tmp_path / "environ").read_text()


def test_the_environment_of_a_child_is_a_list_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only variables of the list are passed on, with their values."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    found = child_environment()

    assert found["TZ"] == "Europe/Berlin"
    assert set(found) <= {"LANG", "LC_ALL", "LD_LIBRARY_PATH", "TZ"}
    assert len(found) < len(os.environ)
