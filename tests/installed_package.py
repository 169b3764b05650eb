"""A package installed for one test: of a module and the entry points that name what is in it, or of its sources."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from eventbridge.rules.types import SOURCE_TYPES, TARGET_TYPES, TRANSFORM_TYPES


def install_sources(source: Path, folder: Path) -> None:
    """Put the content of a package's wheel into a folder, which for pure Python is what pip does."""
    with tempfile.TemporaryDirectory() as work:
        copy = Path(work) / "source"
        shutil.copytree(source, copy)  # because building leaves files
        build = "from setuptools.build_meta import build_wheel; build_wheel('.')"
        subprocess.run([sys.executable, "-c", build], cwd=copy, check=True, capture_output=True)
        (wheel,) = copy.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, package: str, module: str, points: dict[str, str]) -> None:
    """Put a package with one module on the path, with entry points as `group -> name = object`, for one test."""
    folder.mkdir(exist_ok=True)
    (folder / f"{package}.py").write_text(module)
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"[{group}]\n{point}\n" for group, point in points.items()]
    (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, package, raising=False)
    for registry in (
        TARGET_TYPES,
        SOURCE_TYPES,
        TRANSFORM_TYPES,
    ):  # look for packages again, and once more after the test
        monkeypatch.setattr(registry, "_found", None)
        monkeypatch.setattr(registry, "_loaded", {})
