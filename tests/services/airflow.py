"""Starts Airflow's API server with a database and DAGs of its own, without a scheduler: runs stay queued."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from demo.ports import reserve

USER, PASSWORD = "ann", "of-ann-4711"

_DAGS = """
from airflow.sdk import DAG, Asset
from airflow.providers.standard.operators.empty import EmptyOperator

for dag_id, limit in (("load_orders", 10_000), ("few", 3), ("three", 3), ("large", 16), ("paused", 16)):
    with DAG(dag_id, schedule=None, max_active_runs=limit, is_paused_upon_creation=dag_id == "paused"):
        EmptyOperator(task_id="nothing", outlets=[Asset("orders", uri="s3://lake/orders")])
"""

#: Creates the database, stores the DAGs, and serves the API, in one process, because each of Airflow's commands takes
#: seconds to start. Calls are served one after the other: SQLite takes one writer, and a call that meets another waits
#: for seconds, or fails, while a run alone is stored in 25 ms.
_SERVE = """
import asyncio
import contextlib
import sys
import uvicorn
from airflow.utils.db import initdb
initdb()
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db
manager = DagBundlesManager()
manager.sync_bundles_to_db()
for bundle in manager.get_all_dag_bundles():
    bundle.initialize()
    bag = BundleDagBag(bundle.path, bundle_path=bundle.path, bundle_name=bundle.name)
    assert not bag.import_errors, bag.import_errors
    sync_bag_to_db(bag, bundle.name, bundle_version=bundle.get_current_version())
from airflow.api_fastapi.app import create_app
served, turn = create_app(), asyncio.Lock()
async def one_at_a_time(scope, receive, send):
    async with turn if scope["type"] == "http" else contextlib.nullcontext():
        await served(scope, receive, send)
uvicorn.run(one_at_a_time, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
"""


class AirflowServer:
    """An Airflow that takes calls of its REST API at `url`, with the user USER.

    `environment` is that of its process, for further processes of the same Airflow.
    """

    def __init__(self, folder: Path, more_dags: str = "") -> None:
        (folder / "dags").mkdir(parents=True)
        (folder / "dags" / "dags.py").write_text(_DAGS)
        (folder / "dags" / "more_dags.py").write_text(more_dags)
        (folder / "passwords.json").write_text(json.dumps({USER: PASSWORD}))
        self.port = reserve()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = folder / "server.log"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "EVENTBRIDGE"))},
            "AIRFLOW_HOME": str(folder),
            "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(folder / "passwords.json"),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/airflow.db",
            "AIRFLOW__API_AUTH__JWT_SECRET": "x" * 64,
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        }
        self._token = ""

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVE, str(self.port)],
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        end = time.monotonic() + 180
        while not self._answers():
            assert self._process.poll() is None, self._log.read_text()[-3_000:]
            assert time.monotonic() < end, self._log.read_text()[-3_000:]
            time.sleep(0.2)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def call(self, method: str, path: str, **content: Any) -> Any:
        """Return the JSON of a response of the API (v2)."""
        if not self._token:
            login = {"username": USER, "password": PASSWORD}
            self._token = httpx.post(f"{self.url}/auth/token", json=login).raise_for_status().json()["access_token"]
        headers = {"authorization": f"Bearer {self._token}"}
        response = httpx.request(method, f"{self.url}/api/v2/{path}", headers=headers, timeout=30, **content)
        return response.raise_for_status().json()

    def runs(self, dag_id: str) -> dict[str, Any]:
        """Return the runs of a DAG by id."""
        return {run["dag_run_id"]: run for run in self._listed("dag_runs", f"dags/{dag_id}/dagRuns?")}

    def asset_events(self, name: str) -> list[Any]:
        """Return the events of an asset."""
        (asset,) = [each for each in self._listed("assets", f"assets?name_pattern={name}&") if each["name"] == name]
        return self._listed("asset_events", f"assets/events?asset_id={asset['id']}&")

    def _listed(self, name: str, path: str) -> list[Any]:
        found: list[Any] = []
        while page := self.call("GET", f"{path}limit=100&offset={len(found)}")[name]:
            found += page
        return found

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/api/v2/monitor/health", timeout=5).is_success
        except httpx.HTTPError:
            return False
