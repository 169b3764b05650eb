"""The wheel in fresh environments of each supported Python, installed from an index, passes the tour of the README."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from docs.session import run_page
from orchestration.fresh_venv import ROOT, build_wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def find_python(minor: int) -> str:
    """Return the path of Python 3.`minor`; `PYENV_ROOT` and PATH are searched."""
    candidates = [*sorted(pyenv_versions().glob(f"3.{minor}.*/bin/python3")), f"python3.{minor}"]
    found = subprocess.run([ROOT / "tools" / "find-python", *candidates], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


def pyenv_versions() -> Path:
    """Return the folder of pyenv's versions."""
    return Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("minor", [11, 12, 13])
def test_a_fresh_environment_passes_the_tour(wheel: Path, tmp_path: Path, minor: int) -> None:
    """The wheel with its extra `spark` suffices for every command of README.md, and they print what the page says."""
    venv = tmp_path / "venv"
    subprocess.run([find_python(minor), "-m", "venv", venv], check=True)
    subprocess.run([venv / "bin" / "python", "-m", "pip", "install", "--quiet", f"{wheel}[spark]"], check=True)

    wrong = run_page((ROOT / "README.md").read_text(), tmp_path, programs=venv / "bin")

    assert wrong == [], "\n\n".join(wrong)
