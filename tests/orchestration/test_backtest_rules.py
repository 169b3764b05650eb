"""The DAGs `eventbridge_backtest_rules` and `eventbridge_diff_rules`: their tasks use the form, run over a real
archive, and write a report.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.execution_time.context import set_current_context

from eventbridge.airflow import spark
from eventbridge.airflow.settings import airflow_settings
from eventbridge.airflow.tasks import PlainFailure
from eventbridge.backtest import running as running_module
from eventbridge.backtest.running import RunningBacktest, running_backtests
from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.pipeline.deliver import push_and_settle
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.route.stage import route
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.stop import Stop
from eventbridge.sources.embedded.bus import EmbeddedBus
from eventbridge.store.open import open_store

DAGS = Path(__file__).parents[2] / "dags"

#: Another rule for the same bus, to paste into the form.
PASTED = """rules:
  big:
    bus: orders
    pattern: {type: [order.placed, order.archived]}
    targets: {log: {type: file, path: /tmp/never-written.jsonl}}
"""


@pytest.fixture
def archive(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Three events of the bus `orders` in the archive, and a router in this process."""
    rules = Path(tmp_path / "rules" / "orders.yaml")
    rules.write_text(rules.read_text().replace("/tmp/never-written.jsonl", str(tmp_path / "out.jsonl")))
    monkeypatch.setenv("EVENTBRIDGE_DISK_MIN_FREE_SIZE", "0")
    monkeypatch.setattr(spark, "open_router", lambda runtime: InProcessRouter(runtime.store))
    settings = airflow_settings()
    runtime = open_runtime(settings, connections_from_environment({}))
    try:
        with EmbeddedBus(settings.home / "bus", "orders", topics=("events",), clock=lambda: datetime.now(UTC)) as bus:
            bus.publish([(_event(number), None) for number in range(3)])
        batch_id = listen(runtime, "orders") or ""
        buffer(runtime, batch_id)
        push_and_settle(runtime, batch_id, route(runtime, batch_id, InProcessRouter(runtime.store)), Stop())
    finally:
        runtime.close()
    return settings


def _event(number: int) -> bytes:
    kind = "order.archived" if number == 2 else "order.placed"
    return json.dumps({"specversion": "1.0", "id": str(number), "source": "/shop", "type": kind}).encode()


def run(dag_id: str, **filled_in: Any) -> None:
    """Run the task of a DAG with a form."""
    dag = DagBag(DAGS).dags[dag_id]
    (task,) = dag.tasks
    form = {name: dag.params.get_param(name).value for name in dag.params} | {"from": "1h"} | filled_in
    with set_current_context({"params": form}):  # type: ignore[typeddict-item]
        task.python_callable()  # type: ignore[attr-defined]


def kept(settings: Settings, log: str) -> dict[str, Any]:
    """Return the JSON report that a log links; its Markdown must exist as well."""
    store = open_store(settings.store_uri)
    uris = re.findall(r"report: (\S+)", log)
    texts = [store.get(uri.removeprefix(store.uri.rstrip("/") + "/")) for uri in uris]
    assert [uri.rpartition(".")[2] for uri in uris] == ["json", "md"]
    assert texts[1].startswith(b"# ")
    found: dict[str, Any] = json.loads(texts[0])
    return found


def test_a_backtest_writes_its_report_to_the_store(archive: Settings, caplog: pytest.LogCaptureFixture) -> None:
    """The log has the number of matches, and links the report as JSON and as Markdown."""
    with caplog.at_level(logging.INFO):
        run("eventbridge_backtest_rules", candidate="big")

    report = kept(archive, caplog.text)
    assert (report["events"], report["rules"][0]["matched"]) == (3, 2)
    assert "rule big would match 2 of 3 archived events" in caplog.text


def test_a_backtest_records_its_progress_while_it_runs(archive: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record names the candidate and counts the archived events; at the end, and after an error, it is removed."""
    found: list[RunningBacktest] = []
    route_slices = InProcessRouter.route_slices

    def observed(router: InProcessRouter, *arguments: Any) -> Iterator[Any]:
        for result in route_slices(router, *arguments):
            found.extend(running(archive))
            yield result
        found.extend(running(archive))

    monkeypatch.setattr(running_module, "_WRITE_EVERY", timedelta(0))
    monkeypatch.setattr(InProcessRouter, "route_slices", observed)
    run("eventbridge_backtest_rules", candidate="big")
    with pytest.raises(PlainFailure):
        run("eventbridge_backtest_rules", candidate="no-such-rule")

    assert [(each.what, each.done, each.total) for each in found] == [("big", 0, None), ("big", 3, 3)]
    assert (found[-1].percent, found[-1].left) == (100.0, 0.0)
    assert running(archive) == []


def running(settings: Settings) -> list[RunningBacktest]:
    """Return the backtests that run, as the page reads them."""
    with closing(open_runtime(settings, connections_from_environment({}))) as runtime:
        return running_backtests(runtime)


def test_a_diff_compares_a_pasted_rule_file(archive: Settings, caplog: pytest.LogCaptureFixture) -> None:
    """A rule can be pasted into the form; the report shows the events that it gains."""
    with caplog.at_level(logging.INFO):
        run("eventbridge_diff_rules", a="big", b=PASTED)

    (pair,) = kept(archive, caplog.text)["pairs"]
    assert (pair["both"], pair["gained"], pair["lost"]) == (2, 1, 0)
    assert "both match 2 events, only B 1, only A 0" in caplog.text


def test_an_invalid_form_fails_without_a_retry(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The task is not retried, and its log says what to do."""
    monkeypatch.setattr(spark, "open_router", lambda runtime: InProcessRouter(runtime.store))
    errors = {
        "Did you mean big?": {"candidate": "bigg"},
        "from is missing": {"candidate": "big", "from": None},
        "has no rules": {"candidate": "rules: {}"},
        "Did you mean orders?": {"candidate": "rules:\n  big: {bus: order}"},
    }
    for said, filled_in in errors.items():
        with pytest.raises(PlainFailure):
            run("eventbridge_backtest_rules", **filled_in)

        assert said in caplog.messages[-1]
