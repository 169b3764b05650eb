from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from eventbridge.errors import PackageMissing, SparkError
from eventbridge.spark.environment import require_java, spark_home


def fake_java(folder: Path, version: str) -> Path:
    """Make a Java that says which version it is, as the real one does: on standard error."""
    (folder / "bin").mkdir()
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    java.chmod(0o755)
    return folder


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_a_java_that_is_new_enough_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """Java 17 and later are accepted."""
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, version)))

    require_java()


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_392"])
def test_an_old_java_is_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """A Java that Spark 4.2 cannot use is an error with the command that installs a newer one."""
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, version)))

    with pytest.raises(SparkError, match=r"Java 17 or later and .* is version (11|8): sudo apt-get install") as caught:
        require_java()
    assert "\n" not in str(caught.value)


def test_a_missing_java_is_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java at all is an error with the command that installs one."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(SparkError, match=r"there is none on PATH: sudo apt-get install -y openjdk-17-jre-headless"):
        require_java()


def test_a_java_home_without_java_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JAVA_HOME that points nowhere is named."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(SparkError, match=rf"JAVA_HOME is {tmp_path}, where there is none"):
        require_java()


def test_a_missing_pyspark_is_reported_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As any package of an extra: what a person has to do, not a failure of Spark's."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(PackageMissing, match=r"pip install 'eventbridge_airflow-[\d.]+-py3-none-any.whl\[spark\]'"):
        spark_home()
