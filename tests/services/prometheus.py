"""A real Prometheus for tests: Debian's package, unpacked in the cache and not installed."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError

from demo.ports import reserve
from java_tools import ToolMissing, require
from services.cache import CACHE

FETCHED: Final = CACHE / "prometheus"
_START_SECONDS = 60.0


def fetch_prometheus() -> Path:
    """Return the folder of `prometheus` and `promtool`, downloaded if it is missing; raises ToolMissing."""
    programs = FETCHED / "usr" / "bin"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "prometheus.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        if not (programs / "promtool").exists():
            _fetch()
    return programs


def _fetch() -> None:
    require("apt-get", "apt-get", "apt")
    draft = CACHE / "prometheus.draft"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    command = ["apt-get", "download", "prometheus"]
    if subprocess.run(command, cwd=draft, capture_output=True, check=False).returncode:
        subprocess.run(["apt-get", "update"], capture_output=True, check=False)  # for a machine without package lists
        done = subprocess.run(command, cwd=draft, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ToolMissing(f"Debian's package prometheus cannot be fetched: {done.stderr.strip()[-300:]}")
    (package,) = draft.glob("prometheus_*.deb")
    subprocess.run(["dpkg-deb", "-x", str(package), str(draft / "files")], check=True)
    shutil.rmtree(FETCHED, ignore_errors=True)
    (draft / "files").rename(FETCHED)
    shutil.rmtree(draft)


@contextmanager
def prometheus(folder: Path, scraped: str, token: str) -> Iterator[str]:
    """Run a server that scrapes /metrics of an address with a token, by rule and target; yields its URL."""
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "scrape_configs": [
            {
                "job_name": "eventbridge",
                "authorization": {"credentials": token},
                "params": {"targets": ["true"]},
                "static_configs": [{"targets": [scraped]}],
            }
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    port = reserve()
    command = [str(fetch_prometheus() / "prometheus"), f"--config.file={folder}/prometheus.yml"]
    command += [f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + _START_SECONDS
        while not _has(url, "eventbridge_info"):
            if process.poll() is not None or time.monotonic() > until:
                raise ToolMissing(f"Prometheus does not scrape: {(folder / 'prometheus.log').read_text()[-800:]}")
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


def query(url: str, expression: str) -> list[dict[str, Any]]:
    """Return the current series of an expression; raises HTTPError for an invalid one."""
    words = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"{url}/api/v1/query?{words}", timeout=30) as response:
        found = json.load(response)
    assert found["status"] == "success"
    result = found["data"]["result"]
    assert isinstance(result, list)
    return result


def _has(url: str, name: str) -> bool:
    try:
        return bool(query(url, name))
    except (URLError, ConnectionError):
        return False
