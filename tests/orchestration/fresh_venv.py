"""A virtual environment with the wheel and without the checkout, for tests of the installed package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Runs several Airflow commands, each a list in JSON, in one process, as Airflow's imports take five seconds.
_AIRFLOW = """
import json, sys
from airflow.__main__ import main
for command in json.loads(sys.argv[1]):
    print("airflows", flush=True)
    sys.argv = ["airflow", *command]
    main()
"""


@dataclass(frozen=True)
class FreshVenv:
    """The environment's folder, and the working folder of its processes, with Airflow's home and rule files."""

    folder: Path
    workdir: Path

    def run(self, *command: str, fails: bool = False, **variables: str) -> str:
        """Return the output of a command; `fails`: it must fail, and its standard error is returned."""
        kept = ("AIRFLOW", "EVENTBRIDGE", "PYTHON")
        environ = {name: value for name, value in os.environ.items() if not name.startswith(kept)}
        environ |= {
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.defpath}",
            "AIRFLOW_HOME": str(self.workdir / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            "AIRFLOW__EVENTBRIDGE__HOME": str(self.workdir / "home"),
            "AIRFLOW__EVENTBRIDGE__RULES_FOLDER": str(self.workdir / "rules"),
        }
        words = [str(self.folder / "bin" / command[0]), *command[1:]]
        done = subprocess.run(words, cwd=self.workdir, env=environ | variables, capture_output=True, text=True)
        assert bool(done.returncode) == fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout

    def airflow(self, *commands: str) -> list[str]:
        """Return the output of each Airflow command."""
        printed = self.run("python", "-c", _AIRFLOW, json.dumps([command.split() for command in commands]))
        return printed.split("airflows\n")[1:]


def build_wheel(folder: Path) -> Path:
    """Build the wheel by `make wheel` in a copy of the checkout, with leftovers of an earlier build."""
    source = folder / "source"
    shutil.copytree(
        ROOT / "include" / "eventbridge",
        source / "include" / "eventbridge",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for name in ("Makefile", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    earlier = source / "build" / "lib" / "eventbridge"
    earlier.mkdir(parents=True)
    (earlier / "removed_since.py").touch()
    make = ["make", "--assume-old=setup", "wheel", f"BIN={Path(sys.executable).parent}"]
    subprocess.run(make, cwd=source, check=True, capture_output=True)
    (wheel,) = (source / "dist").glob("*.whl")
    return wheel


def install_wheel(folder: Path, wheel: Path) -> FreshVenv:
    """Install the wheel in an environment with all other packages of this one, but without the checkout."""
    venv = FreshVenv(folder / "venv", folder / "work")
    venv.workdir.mkdir()
    subprocess.run([sys.executable, "-m", "venv", str(venv.folder)], check=True, capture_output=True)
    pip = [str(venv.folder / "bin" / "python"), "-m", "pip", "install", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    others = folder / "others"
    others.mkdir()
    for found in Path(sysconfig.get_path("purelib")).iterdir():
        if "eventbridge" not in found.name and found.suffix != ".pth":
            (others / found.name).symlink_to(found)
    site = Path(venv.run("python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "others.pth").write_text(f"{others}\n")
    return venv
