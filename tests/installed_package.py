"""A package installed for one test: a module and the entry points that name what is in it. Serves tests of types."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eventbridge.rules.types import SOURCE_TYPES, TARGET_TYPES


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
    for registry in (TARGET_TYPES, SOURCE_TYPES):  # look for packages again, and once more after the test
        monkeypatch.setattr(registry, "_found", None)
        monkeypatch.setattr(registry, "_loaded", {})
