"""Which Python `make setup` takes, on machines that have other ones than this."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

FIND = Path(__file__).parents[3] / "tools" / "find-python"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Return the home of a machine without Python: its PATH has the folder `bin`, with bash and env alone."""
    (tmp_path / "bin").mkdir()
    for name in ("bash", "env"):
        (tmp_path / "bin" / name).symlink_to(Path("/usr/bin") / name)
    return tmp_path


def install(machine: Path, name: str, version: str, folder: str = "bin") -> str:
    """Put a program there that responds as this version of Python would, and return its path."""
    program = machine / folder / name
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\necho {version} {program}\n")
    program.chmod(0o755)
    return str(program)


def find(machine: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the search on that machine."""
    environ = {"PATH": str(machine / "bin"), "HOME": str(machine)}
    return subprocess.run([FIND, *words], env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_python3_is_taken_if_it_is_from_311_to_313(machine: Path, version: str) -> None:
    """Whatever the machine calls python3 is taken, also where a newer one stands beside it."""
    python3 = install(machine, "python3", version)
    install(machine, "python3.13", "3.13")

    assert find(machine).stdout == f"{python3}\n"


@pytest.mark.parametrize("version", ["3.10", "3.14", "3.9"])
def test_another_python3_is_passed_over_for_the_newest_that_fits(machine: Path, version: str) -> None:
    """An older or newer python3 is not taken: python3.12 goes before python3.11."""
    install(machine, "python3", version)
    install(machine, "python3.11", "3.11")
    newest = install(machine, "python3.12", "3.12")

    assert find(machine).stdout == f"{newest}\n"


def test_a_program_that_does_not_run_is_no_python(machine: Path) -> None:
    """pyenv's python3.13 fails unless that version is chosen; the Python below pyenv's versions is taken."""
    shim = machine / "bin" / "python3.13"
    shim.write_text("#!/bin/sh\necho 'pyenv: python3.13: command not found'\nexit 127\n")
    shim.chmod(0o755)
    found = install(machine, "python3", "3.13", folder=".pyenv/versions/3.13.0/bin")

    assert find(machine).stdout == f"{found}\n"


def test_a_second_version_is_another_minor_version(machine: Path) -> None:
    """`--besides 3.11` finds no other 3.11; without another version it fails and names what it found."""
    install(machine, "python3", "3.11")
    install(machine, "python3.11", "3.11", folder=".pyenv/versions/3.11.7/bin")
    missing = find(machine, "--besides", "3.11")
    other = install(machine, "python3.12", "3.12")

    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr.startswith("Python 3.11, 3.12 or 3.13 beside 3.11 is missing (python3 is 3.11")
    assert find(machine, "--besides", "3.11").stdout == f"{other}\n"


def test_a_python_that_is_named_must_fit(machine: Path) -> None:
    """`make setup PYTHON=...` takes the named Python or says which version it is; no other is taken instead."""
    install(machine, "python3", "3.12")
    old = install(machine, "python3.10", "3.10")
    named = install(machine, "python3.11", "3.11")
    refused = find(machine, old)

    assert find(machine, "python3.11").stdout == f"{named}\n"
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"is missing ({old} is 3.10): sudo apt-get install" in refused.stderr


def test_without_a_python_the_error_names_what_to_install(machine: Path) -> None:
    """Nothing is printed as a path, and the error names the versions and a command."""
    done = find(machine)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Python 3.11, 3.12 or 3.13 is missing: sudo apt-get install -y python3 python3-venv")


def test_make_setup_names_the_versions_that_it_can_use(machine: Path) -> None:
    """`make setup` with a Python that is too old makes nothing and ends with the error of the search."""
    old = install(machine, "python3.10", "3.10")
    words = ["make", "setup", f"VENV={machine}/venv", f"PYTHON={old}"]
    done = subprocess.run(words, cwd=FIND.parents[1], capture_output=True, text=True, check=False)

    assert done.returncode != 0
    assert f"Python 3.11, 3.12 or 3.13 is missing ({old} is 3.10)" in done.stderr
    assert not (machine / "venv").exists()
