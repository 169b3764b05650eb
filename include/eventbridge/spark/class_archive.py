"""Finds the archive of Spark's classes, from which Java starts Spark in half the time.

Java maps the archived classes into memory and need not read, verify and link them (class data sharing, JEP 350).
`server.archive_classes` makes an archive. It is for one Java and one Spark; Java also checks the jars itself, and loads
the classes as usual if they have changed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

#: The flags with which Java uses an archive, and says nothing if it cannot.
_FLAGS: Final = '"-XX:SharedArchiveFile={}" -Xlog:cds=off -Xlog:cds+dynamic=off'


def archive_flags(java: Path, spark: Path) -> str:
    """Return the flags with which Java uses the archive, or nothing if there is no archive for this Java and Spark."""
    found = find_archive(java, spark)
    return "" if found is None else _FLAGS.format(found)


def find_archive(java: Path, spark: Path) -> Path | None:
    """Return the archive for a program `java` and the home of a Spark, or None.

    It is beside the package, or in the cache folder of this user. Its name has its size, because Java crashes if a part
    of the file is missing.
    """
    for folder in _folders():
        for file in folder.glob(f"spark-{_key(java, spark)}-*.jsa"):
            with suppress(OSError):
                if file.stat().st_size == _size_in_name(file) and os.access(file, os.R_OK):
                    return file
    return None


def store_archive(file: Path, java: Path, spark: Path) -> Path:
    """Copy an archive to where `find_archive` finds it, and return its path. Raises OSError."""
    name = f"spark-{_key(java, spark)}-{file.stat().st_size}.jsa"
    problem: OSError | None = None
    for folder in _folders():
        new = folder / f".{name}.{os.getpid()}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, new)
            new.chmod(0o644)  # it has classes only, and other users of an image start Spark too
            return new.replace(folder / name)
        except OSError as error:
            new.unlink(missing_ok=True)
            problem = error
    assert problem is not None
    raise problem


def _folders() -> list[Path]:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return [Path(__file__).parent / "__pycache__", cache / "eventbridge"]


def _key(java: Path, spark: Path) -> str:
    """Return what an archive depends on: the file of Java and the jars of Spark, with their times in seconds."""
    parts = [f"{path} {int(path.stat().st_mtime)}" for path in (java.resolve(), spark / "jars")]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _size_in_name(file: Path) -> int:
    size = file.stem.rpartition("-")[2]
    return int(size) if size.isdecimal() else -1
