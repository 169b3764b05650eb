"""Runs the commands of docs/howto/install.md in a separate Airflow with the wheel and without the checkout.

Part of `make test-deep`; `tests/orchestration/test_installed_wheel.py` runs the wheel's commands and parses its DAGs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from demo.ports import reserve
from docs.session import FENCE
from orchestration.fresh_venv import ROOT, FreshVenv, build_wheel, install_wheel

pytestmark = pytest.mark.timeout(600)

PAGE = ROOT / "docs" / "howto" / "install.md"
_PATIENCE_SECONDS = 400.0


@pytest.fixture
def venv(tmp_path: Path) -> FreshVenv:
    """Install the wheel, the results of `eventbridge compile` for the same sources, and the commands of the page."""
    made = install_wheel(tmp_path, build_wheel(tmp_path))
    site = next((made.folder / "lib").glob("python*/site-packages"))
    for kept in (ROOT / "include" / "eventbridge").rglob("*.nb[ic]"):
        copy = site / kept.relative_to(ROOT / "include")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(kept, copy)
    python = made.folder / "bin" / "python"
    spark = tmp_path / "others" / "pyspark"
    commands = {
        "airflow": f'exec {python} -m airflow "$@"',
        "spark-submit": f'export SPARK_HOME={spark} PYSPARK_PYTHON={python}\nexec {spark}/bin/spark-submit "$@"',
    }
    for name, call in commands.items():
        file = made.folder / "bin" / name
        file.write_text(f"#!/bin/sh\n{call}\n")
        file.chmod(0o755)
    return made


def script(folder: Path, airflow_port: int, spark_port: int) -> str:
    """Return the page's commands, with free ports and temporary folders."""
    text = "".join(fence[2] for fence in FENCE.finditer(PAGE.read_text()) if fence[1] == "sh install")
    own = text.replace("/srv/", f"{folder}/").replace("8080", str(airflow_port)).replace("15002", str(spark_port))
    return f"set -eux\n{own}touch delivered\nwait\n"


def stop_shell(shell: subprocess.Popen[bytes]) -> None:
    """Stop a shell with all its child processes."""
    family = [*psutil.Process(shell.pid).children(recursive=True), psutil.Process(shell.pid)]
    for stop in (psutil.Process.terminate, psutil.Process.kill):
        for each in family:
            if each.is_running():
                stop(each)
        _, family = psutil.wait_procs(family, timeout=15)
    shell.wait()


@pytest.fixture
def shell(venv: FreshVenv) -> Iterator[subprocess.Popen[bytes]]:
    """Run the page's commands in one shell, and stop all processes that they started."""
    port = reserve()
    kept = ("AIRFLOW", "EVENTBRIDGE", "PYTHON", "SPARK", "PYSPARK")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(kept)} | {
        "PATH": f"{venv.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "AIRFLOW_HOME": str(venv.workdir / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with (venv.workdir / "page.log").open("wb") as output:
        started = subprocess.Popen(
            ["bash", "-c", script(venv.workdir, port, reserve())],
            cwd=venv.workdir,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield started
    finally:
        stop_shell(started)


def test_a_new_airflow_delivers_its_first_event_as_documented(shell: subprocess.Popen[bytes], venv: FreshVenv) -> None:
    """Its commands run in order, from the settings on; the last ones find the published event delivered."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while not (venv.workdir / "delivered").exists():
        assert shell.poll() is None, log_ends(venv)
        assert time.monotonic() < until, log_ends(venv)
        time.sleep(0.5)

    (line,) = (venv.workdir / "eventbridge" / "files" / "orders.jsonl").read_text().splitlines()
    assert '"order.placed"' in line


def log_ends(venv: FreshVenv) -> str:
    """Return the ends of the logs of the page's commands, of Airflow and of Spark."""
    logs = [venv.workdir / name for name in ("page.log", "airflow.log", "spark.log")]
    return "\n".join(f"{log.name}:\n{log.read_text(errors='replace')[-4_000:]}" for log in logs if log.exists())
