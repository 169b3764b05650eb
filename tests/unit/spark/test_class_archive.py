from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventbridge.spark import class_archive
from eventbridge.spark.class_archive import archive_flags, find_archive, store_archive


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[tuple[Path, Path, Path]]:
    """A program of Java, the home of a Spark, and the archive that is stored for both."""
    java, spark, file = tmp_path / "java", tmp_path / "spark", tmp_path / "classes"
    java.write_text("#!/bin/sh\n")
    (spark / "jars").mkdir(parents=True)
    file.write_bytes(b"classes")
    stored = store_archive(file, java, spark)
    yield java, spark, stored
    stored.unlink(missing_ok=True)


def test_an_archive_is_found_beside_the_package(installed: tuple[Path, Path, Path]) -> None:
    """Java gets the path of the archive, which every user may read and only its owner may write."""
    java, spark, stored = installed

    assert find_archive(java, spark) == stored
    assert f'"-XX:SharedArchiveFile={stored}"' in archive_flags(java, spark)
    assert (stored.parent.parent, stored.stat().st_mode & 0o777) == (Path(class_archive.__file__).parent, 0o644)


def test_an_archive_of_another_java_or_other_jars_is_not_used(installed: tuple[Path, Path, Path]) -> None:
    """An archive is for one program and one set of jars; a new program of the same path is another one."""
    java, spark, stored = installed
    os.utime(spark / "jars", (1, 1))
    assert archive_flags(java, spark) == ""

    os.utime(spark / "jars", (stored.stat().st_mtime, stored.stat().st_mtime))
    os.utime(java, (1, 1))
    assert archive_flags(java, spark) == ""


def test_an_archive_that_lost_a_part_is_not_used(installed: tuple[Path, Path, Path]) -> None:
    """Java would crash at it."""
    java, spark, stored = installed
    stored.write_bytes(b"class")

    assert archive_flags(java, spark) == ""
    assert find_archive(java, spark) is None
