"""OpenLineage's provider reports what EventBridge's tasks read and wrote, as docs/howto/lineage.md shows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from eventbridge.airflow.dataset_names import DatasetNames
from eventbridge.airflow.push import PushOperator
from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.config.target_locations import TargetLocations
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.route.stage import route
from eventbridge.routing.task import InProcessRouter
from eventbridge.rules.load import load_rules
from eventbridge.runtime.open import open_runtime

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "howto" / "lineage.md").read_text()
(RULES,) = re.findall(r"^```yaml rules\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
(SHOWN,) = re.findall(r"^```json lineage\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
VARIABLES = dict(re.findall(r"^export (\w+)='?(.*?)'?(?: +#.*)?$", PAGE, re.MULTILINE))

ORDER = {
    "specversion": "1.0",
    "id": "1",
    "source": "/shop",
    "type": "order.placed",
    "data": {"id": "A-1", "amount": 2500, "address": {"street": "Dam 1", "town": "Amsterdam"}},
}

#: Runs each task of a DAG in this process, with Airflow's listeners, as `airflow dags test` does.
_RUN = """
import sys
from airflow.utils.db import initdb
initdb()
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db
manager = DagBundlesManager()
manager.sync_bundles_to_db()
(bundle,) = manager.get_all_dag_bundles()
bundle.initialize()
bag = BundleDagBag(bundle.path, bundle_path=bundle.path, bundle_name=bundle.name)
assert not bag.import_errors, bag.import_errors
sync_bag_to_db(bag, bundle.name, bundle_version=bundle.get_current_version())
for dag_id in sys.argv[1:]:
    assert bag.dags[dag_id].test().state == "success"
"""

_PUBLISH = """
from airflow.sdk import DAG
from eventbridge.airflow.publish import PublishEventsOperator
paid = {"specversion": "1.0", "source": "/shop", "type": "order.paid"}
with DAG("import_orders", schedule=None):
    PublishEventsOperator(task_id="publish", bus="orders", events=[paid, paid])
"""


def without_schema_urls(value: Any) -> Any:
    """Return JSON without the members that each facet has."""
    if isinstance(value, dict):
        kept = {name: each for name, each in value.items() if name not in ("_producer", "_schemaURL")}
        return {name: without_schema_urls(each) for name, each in kept.items() if name != "fields" or each != []}
    return [without_schema_urls(each) for each in value] if isinstance(value, list) else value


def test_tasks_report_their_datasets_as_the_page_shows(tmp_path: Path) -> None:
    """A run of the real DAG, with the variables and the rule of the page, writes the event of the page into the file.

    The batch is already routed, so that the run needs no Spark. A task of a user that publishes has the bus as output.
    """
    dags, rules, files = tmp_path / "dags", tmp_path / "rules", tmp_path / "deliveries"
    for folder in (dags, rules, files):
        folder.mkdir()
    (dags / "deliver.py").write_text((ROOT / "dags" / "eventbridge_deliver_events.py").read_text())
    (dags / "import_orders.py").write_text(_PUBLISH)
    (rules / "orders.yaml").write_text(RULES)
    settings = Settings(home=tmp_path / "home", rules_folder=rules, batch_timeout=600)
    runtime = open_runtime(settings, connections_from_environment({}))
    with runtime.open_publisher(runtime.rule_set().buses["orders"]) as bus:
        bus.publish([(json.dumps(ORDER).encode(), "1")])
    batch_id = listen(runtime, "orders")
    assert batch_id is not None
    buffer(runtime, batch_id)
    route(runtime, batch_id, InProcessRouter(runtime.store))
    runtime.close()
    written = tmp_path / "lineage.jsonl"
    variables = {name: value.replace("/tmp/lineage.jsonl", str(written)) for name, value in VARIABLES.items()}

    run = subprocess.run(
        [sys.executable, "-c", _RUN, "eventbridge_deliver_orders", "import_orders"],
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "EVENTBRIDGE"))},
            "AIRFLOW_HOME": str(tmp_path / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            "AIRFLOW_CONN_EVENTBRIDGE_AIRFLOW": "http://login:password@127.0.0.1:1",
            "AIRFLOW_CONN_EVENTBRIDGE_SPARK": "spark-connect://127.0.0.1:1",
            "EVENTBRIDGE_HOME": str(settings.home),
            "EVENTBRIDGE_RULES_FOLDER": str(rules),
            "EVENTBRIDGE_FILE_TARGET_FOLDERS": str(files),
            **variables,
        },
        capture_output=True,
        text=True,
    )

    assert run.returncode == 0, run.stdout[-3_000:] + run.stderr[-3_000:]
    events = [json.loads(line) for line in written.read_text().splitlines()]
    completed = {each["job"]["name"]: each for each in events if each["eventType"] == "COMPLETE"}
    pushed, published = completed["eventbridge_deliver_orders.push"], completed["import_orders.publish"]
    found = without_schema_urls({name: pushed[name] for name in ("inputs", "outputs")})
    assert found == json.loads(SHOWN.replace("/srv/deliveries", str(files)))
    assert pushed["job"]["namespace"] == "shop"
    size = found["outputs"][0]["outputFacets"]["outputStatistics"]["size"]
    assert (files / "big-orders.jsonl").stat().st_size == size + len("\n")
    assert [(each["namespace"], each["name"]) for each in published["outputs"]] == [("eventbridge://shop", "orders")]
    assert published["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 2


CONNECTIONS = {
    "KAFKA": "kafka://login:s3cret@broker-1.example%3A9093%2Cbroker-2%3A9092?security.protocol=SASL_SSL",
    "KAFKA_SERVERS": "kafka://?bootstrap.servers=SASL_SSL%3A%2F%2Fbroker-3.example%2Cbroker-4",
    "ROCKETMQ": "rocketmq://login:s3cret@names.example",
    "LAKE": "aws://login:s3cret@?region_name=eu-west-1",
    "ELASTICMQ": "aws://login:s3cret@?region_name=eu-west-1&endpoint_url=http%3A%2F%2Fsqs.example%3A9324",
    "SHOP_DB": "postgres://login:s3cret@db.example/shop?options=-csearch_path%3Ds3cret",
    "TORN_DB": '{"conn_type": "postgres", "host": "s3cret@db.example", "login": "login", "schema": "shop"}',
    "FILE_DB": "sqlite:///srv%2Fshop.db",
    "CATALOG": "iceberg://login:s3cret@catalog.example:8181/api",
    "CRM": "https://login:s3cret@crm.example",
    "ROOM": "https://?secret_url=https%3A%2F%2Fhooks.example%3A8443%2Fservices%2Fs3cret%3Ftoken%3Ds3cret",
    "JOBS": "https://login:s3cret@airflow.example:8080",
}

NAMES = {
    "{type: kafka, connection: kafka, topic: orders}": ("kafka://broker-1.example:9093", "orders"),
    "{type: kafka, connection: kafka_servers, topic: orders}": ("kafka://broker-3.example:9092", "orders"),
    "{type: rocketmq, connection: rocketmq, topic: orders}": ("rocketmq://names.example:9876", "orders"),
    "{type: s3, connection: lake, bucket: lake-1, prefix: raw/orders}": ("s3://lake-1", "raw/orders"),
    "{type: s3, connection: lake, bucket: lake-1}": ("s3://lake-1", "/"),
    "{type: file, path: orders/big.jsonl}": ("file", "/srv/files/orders/big.jsonl"),
    "{type: delta, connection: lake, table: s3://lake-1/raw/orders}": ("s3://lake-1", "raw/orders"),
    "{type: delta, table: lake/orders}": ("file", "/srv/files/lake/orders"),
    "{type: iceberg, connection: catalog, table: sales.orders}": ("https://catalog.example:8181", "sales.orders"),
    "{type: iceberg, connection: shop_db, table: sales.orders}": (
        "iceberg+postgres://db.example:5432",
        "shop.sales.orders",
    ),
    "{type: iceberg, connection: file_db, table: sales.orders}": ("iceberg+sqlite", "/srv/shop.db.sales.orders"),
    "{type: queue, queue: jobs}": ("eventbridge://shop", "queues/jobs"),
    "{type: sql, connection: shop_db, table: orders}": ("postgres://db.example:5432", "shop.public.orders"),
    "{type: sql, connection: shop_db, table: sales.orders}": ("postgres://db.example:5432", "shop.sales.orders"),
    "{type: sql, connection: torn_db, table: orders}": ("postgres://db.example:5432", "shop.public.orders"),
    "{type: sql, connection: file_db, table: orders}": ("sqlite", "/srv/shop.db.orders"),
    '{type: http, url: "https://crm.example/v1/orders?shop=7"}': ("https://crm.example", "/v1/orders"),
    '{type: http, url: "https://crm.example", connection: crm}': ("https://crm.example", "/"),
    "{type: http, connection: room}": ("https://hooks.example:8443", "connection:room"),
    "{type: airflow, connection: jobs, dag_id: load}": ("airflow://airflow.example:8080", "dags/load"),
    "{type: airflow, connection: jobs, asset: orders}": ("airflow://airflow.example:8080", "assets/orders"),
    '{type: airflow, connection: jobs, url: "https://two.example", dag_id: a}': ("airflow://two.example", "dags/a"),
    '{type: airflow, connection: jobs, asset: "s3://lake-1/raw"}': ("s3://lake-1", "raw"),
    '{type: airflow, connection: jobs, asset: "file:///srv/x.csv"}': ("file", "/srv/x.csv"),
    '{type: airflow, connection: jobs, asset: "postgres://db:5432/shop/sales/orders"}': (
        "postgres://db:5432",
        "shop.sales.orders",
    ),
}

SOURCES = {
    "{type: embedded}": [("eventbridge://shop", "orders")],
    "{type: kafka, connection: kafka, topics: [placed, paid]}": [
        ("kafka://broker-1.example:9093", "placed"),
        ("kafka://broker-1.example:9093", "paid"),
    ],
    "{type: rocketmq, connection: rocketmq, topics: [placed]}": [("rocketmq://names.example:9876", "placed")],
    "{type: sqs, connection: lake, topics: [placed]}": [("sqs://sqs.eu-west-1.amazonaws.com", "placed")],
    "{type: sqs, connection: elasticmq, topics: [placed]}": [("sqs://sqs.example:9324", "placed")],
}


def rule_file(folder: Path, source: str = "{type: embedded}", target: str = "{type: file, path: x.jsonl}") -> Any:
    """Return the rules with one bus and one target."""
    (folder / "orders.yaml").write_text(
        f"buses: {{orders: {{source: {source}}}}}\n"
        f"rules: {{big: {{bus: orders, pattern: {{type: [order.placed]}}, targets: {{out: {target}}}}}}}\n"
    )
    return load_rules(folder)


def names() -> DatasetNames:
    """Return what names datasets, with the connections above."""
    found = connections_from_environment({f"EVENTBRIDGE_CONN_{name}": uri for name, uri in CONNECTIONS.items()})
    return DatasetNames("shop", found, TargetLocations(file_folders=(Path("/srv/files"),)))


@pytest.mark.parametrize(("target", "name"), NAMES.items())
def test_a_target_has_the_name_of_the_specification(target: str, name: tuple[str, str], tmp_path: Path) -> None:
    """Namespace and name of each type are those of OpenLineage, and contain no secret of the connection."""
    rules = rule_file(tmp_path, target=target)
    found = names().target_name("big", rules.rules["big"].targets["out"])

    assert found == name
    assert not re.search("s3cret|login|shop=7", str(found))


@pytest.mark.parametrize(("source", "datasets"), SOURCES.items())
def test_a_bus_has_the_names_of_its_topics(source: str, datasets: list[tuple[str, str]], tmp_path: Path) -> None:
    """A bus on a broker is its topics, with the names that other tools give them; an embedded one is the bus."""
    assert names().bus_names(rule_file(tmp_path, source=source).buses["orders"]) == datasets


def test_a_target_whose_connection_has_an_invalid_url_gets_a_name_of_its_own(tmp_path: Path) -> None:
    """So the other datasets of the task are still reported."""
    from eventbridge.airflow.lineage import Written, _Lineage

    rules = rule_file(tmp_path, target="{type: iceberg, connection: broken, table: shop.orders}")
    connection = json.dumps({"conn_type": "iceberg", "host": "https://[::1"})
    settings = Settings.from_mapping({"EVENTBRIDGE_HOME": str(tmp_path / "home")})
    runtime = open_runtime(settings, connections_from_environment({"EVENTBRIDGE_CONN_BROKEN": connection}))
    with closing(runtime):
        found = _Lineage(runtime, rules, {"orders": 1}).describe({("big", "out"): Written(1, None)})

    assert ([each.name for each in found.inputs], [each.name for each in found.outputs]) == (["orders"], ["big/out"])


def test_lineage_costs_nothing_without_the_provider() -> None:
    """The modules of tasks and DAGs do not import OpenLineage."""
    code = (
        "import sys; from eventbridge.airflow.preload import TASK_MODULES; import importlib\n"
        "for each in TASK_MODULES: importlib.import_module(each)\n"
        "print([name for name in sys.modules if name.startswith(('openlineage', 'eventbridge.airflow.lineage'))])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.strip().splitlines()[-1] == "[]"


def test_a_push_without_a_result_has_no_lineage() -> None:
    """A push that failed or found nothing to do reports no datasets, and reads no ledger."""
    push = PushOperator(task_id="push", batch_id="", chunk_id=0)

    found = push.get_openlineage_facets_on_complete(None)

    assert (found.inputs, found.outputs) == ([], [])
