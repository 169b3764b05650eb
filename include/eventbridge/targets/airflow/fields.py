"""Defines the rule-file fields of the target type `airflow`; it imports little, because all rule readers import it."""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from eventbridge.rules.address import url_error
from eventbridge.rules.fields import Fields
from eventbridge.rules.frozen import FrozenModel
from eventbridge.rules.model import Target, Transform
from eventbridge.rules.types import SMALL_CHUNK, ChunkSize, Takes, TargetType

#: Airflow's rule for the ids of DAGs (airflow._shared.validate_key), for ASCII letters.
_DAG_ID: Final = re.compile(r"[\w.-]{1,250}", re.ASCII)
#: The DAGs of EventBridge itself: a rule that started them could redrive and replay without the right to do so.
_OWN_DAGS: Final = "eventbridge_"
_SINGLE_DELIVERY_FIELDS: Final = ("ordering_key", "not_before", "deliver_within")
_MAX_EVENTS: Final = 10_000


class RunBatch(FrozenModel):
    """The maximum number of deliveries, and of their payload bytes, in the conf of one DAG run."""

    count: int = 1_000
    size_bytes: int = 256 << 10


class AirflowFields(Target):
    """A DAG in Airflow, whose runs get deliveries as their conf, or an asset, whose events get deliveries as their
    extra.

    `url` is the address of Airflow; if it is empty, the connection's address is used. Either `dag_id` or `asset` (a
    name or URI) is set. `partition_key` is the member of the payload that holds the partition key.
    """

    type: Literal["airflow"] = "airflow"
    connection: str = ""
    url: str = ""
    allow_http: bool = False
    dag_id: str = ""
    asset: str = ""
    partition_key: str = ""
    batch: RunBatch | None = None  # None: one DAG run for each delivery


def _read_fields(fields: Fields, transform: Transform | None) -> dict[str, Any]:
    allow_http = fields.flag("allow_http", default=False)
    url = fields.text("url")
    if url and (problem := url_error(url, allow_http=allow_http)):
        fields.add_to("url", *problem)
    dag_id, asset = fields.text("dag_id"), fields.text("asset")
    if bool(dag_id) == bool(asset):
        where = "dag_id" if dag_id else "type"
        what = "a target of the type airflow must have " + (
            "dag_id or asset, not both" if dag_id else "dag_id or asset"
        )
        fields.add_to(
            where, what, "Write dag_id: load_orders to start DAG runs, or asset: orders to create asset events"
        )
    if dag_id and (not _DAG_ID.fullmatch(dag_id) or dag_id in (".", "..")):  # which a path of a URL cannot hold
        fields.add_to("dag_id", f"{dag_id[:60]!r} is not a valid DAG id", "Use only letters, digits and _ - .")
    if dag_id.startswith(_OWN_DAGS):
        what = f"{dag_id[:60]!r} is a DAG of EventBridge, which rules may not start"
        fields.add_to("dag_id", what, "Name one of your own DAGs")
    of_events = {} if transform is None else _read_event_fields(fields, asset)
    return {
        "connection": fields.name("connection", required=True),
        "url": url,
        "allow_http": allow_http,
        "dag_id": dag_id,
        "asset": asset,
        "partition_key": fields.text("partition_key"),
        "timeout_seconds": fields.duration("timeout", 10.0, 1.0, 30.0),
        "max_in_flight": fields.whole("max_in_flight", 8, 1, 1_000),
        **of_events,
    }


def _read_event_fields(fields: Fields, asset: str) -> dict[str, Any]:
    """Return the fields that a dead letter queue does not have."""
    mode = fields.choice("content_mode", "structured", ("structured", "data"))
    batch = None
    if fields.get("batch") is not None:
        if asset:
            fields.refuse(
                ("batch",), "{} puts many events into one DAG run, but this target creates asset events", "Remove it"
            )
        what = "{} applies to single deliveries, but batch sends many as one DAG run"
        fields.refuse((*_SINGLE_DELIVERY_FIELDS, "partition_key"), what, "Remove it, or batch")
        tolerance = fields.get("errors_tolerance")
        if tolerance is not None and tolerance.value == "none":
            fields.refuse(
                ("errors_tolerance",),
                "{}: none requires ordered deliveries, but a DAG run of many events has no order",
                "Remove it",
            )
        size = fields.nested("batch", "a batch")
        size.close()
        fields.refuse_empty("batch", "Write batch: {count: 1000, bytes: 256KiB}, or one of the two")
        default = RunBatch()
        batch = RunBatch(
            count=size.whole("count", default.count, 2, _MAX_EVENTS),
            size_bytes=size.size("bytes", default.size_bytes, 1 << 10, 1 << 20),
        )
    return {"content_mode": mode, "batch": batch}


def _takes(target: AirflowFields) -> Takes:
    return "spans" if target.batch is not None else "deliveries"


def _chunk_size(target: AirflowFields) -> ChunkSize:
    return SMALL_CHUNK if target.batch is None else ChunkSize(target.batch.count, target.batch.size_bytes)


AIRFLOW = TargetType(
    "airflow",
    AirflowFields,
    "eventbridge.targets.airflow.target:open_airflow",
    takes=_takes,
    chunk_size=_chunk_size,
    read=_read_fields,
    words=(
        "connection",
        "url",
        "allow_http",
        "dag_id",
        "asset",
        "partition_key",
        "batch",
        "timeout",
        "max_in_flight",
        "content_mode",
    ),
)
