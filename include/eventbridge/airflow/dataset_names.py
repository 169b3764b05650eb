"""Names buses and targets as OpenLineage names datasets, so that they are the same datasets for other tools.

The names follow OpenLineage's naming specification, as its integrations for Spark and Airflow do. They have no
credentials, no query of a URL, and no part of a URL that a connection holds, except scheme, host and port.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from eventbridge.clients.s3.access import S3Access
from eventbridge.config.connection import Connection
from eventbridge.config.target_locations import TargetLocations
from eventbridge.rules import Bus
from eventbridge.rules import Target as TargetRule
from eventbridge.targets.file.location import location_of
from eventbridge.targets.http.address import address_of, origin_of

_PORTS: Final = {"kafka": 9092, "rocketmq": 9876, "postgres": 5432}


class DatasetName(NamedTuple):
    """The name of a dataset: `namespace` is the data source, `name` is unique in it."""

    namespace: str
    name: str


@dataclass(frozen=True)
class DatasetNames:
    """Names the buses and targets of an installation.

    `installation` distinguishes what only EventBridge knows, such as embedded buses, from that of other installations.
    """

    installation: str
    connections: Callable[[str], Connection]
    locations: TargetLocations

    def bus_names(self, bus: Bus) -> list[DatasetName]:
        """Return the datasets that a bus reads: its topics or, of an embedded bus, the bus. Raises EventBridgeError if
        a connection is unusable."""
        source: Any = bus.source
        if source.type in ("kafka", "rocketmq"):
            namespace = _broker_namespace(source.type, self.connections(source.connection))
        elif source.type == "sqs":
            namespace = _sqs_namespace(self.connections(source.connection) if source.connection else None)
        else:
            return [self.own(bus.name)]
        return [DatasetName(namespace, topic) for topic in source.topics]

    def target_name(self, rule: str, target: TargetRule) -> DatasetName:
        """Return the dataset that a target of a rule writes. Raises EventBridgeError, or OSError for a path that is not
        allowed."""
        fields: Any = target
        match target.type:
            case "kafka" | "rocketmq":
                return DatasetName(_broker_namespace(target.type, self.connections(fields.connection)), fields.topic)
            case "s3":
                return DatasetName(f"s3://{fields.bucket}", fields.prefix or "/")
            case "file":
                return self._file_name(fields.path)
            case "delta":
                in_bucket = fields.table.startswith("s3://")
                return _asset_name(fields.table) if in_bucket else self._file_name(fields.table)
            case "sql":
                return _table_name(self.connections(fields.connection), fields.table)
            case "iceberg":
                return _iceberg_name(self.connections(fields.connection), fields.table)
            case "queue":
                return self.own(f"queues/{fields.queue}")
            case "http":
                connection = self.connections(fields.connection) if fields.connection is not None else None
                return _url_name(fields, address_of(rule, fields, connection))
            case "airflow":
                return self._airflow_name(fields)
        return self.own(f"{rule}/{target.name}")

    def _file_name(self, path: str) -> DatasetName:
        return DatasetName("file", location_of(path, self.locations).path)

    def own(self, name: str) -> DatasetName:
        """Return the name of a dataset that only EventBridge knows."""
        return DatasetName(f"eventbridge://{self.installation}", name)

    def _airflow_name(self, target: Any) -> DatasetName:
        if "://" in target.asset:
            return _asset_name(target.asset)
        if target.url:
            namespace = f"airflow://{_authority(urlsplit(target.url))}"
        else:
            _, host, port = origin_of(self.connections(target.connection)) or ("", "", None)
            namespace = f"airflow://{host}{f':{port}' if port else ''}"
        return DatasetName(namespace, f"dags/{target.dag_id}" if target.dag_id else f"assets/{target.asset}")


def _broker_namespace(kind: str, connection: Connection) -> str:
    """Return the namespace of brokers: the first one, as OpenLineage's integration for Spark does."""
    given = connection.extra.get("bootstrap.servers") or connection.extra.get("name_servers") or connection.host
    first = str(given).replace(";", ",").split(",")[0].strip().rpartition("://")[2].rpartition("@")[2]
    return f"{kind}://{first if ':' in first else f'{first}:{connection.port or _PORTS[kind]}'}"


def _sqs_namespace(connection: Connection | None) -> str:
    access = S3Access() if connection is None else S3Access.from_connection(connection)
    if access.endpoint:
        return f"sqs://{_authority(urlsplit(access.endpoint))}"
    region = access.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    return f"sqs://sqs.{region}.amazonaws.com"


def _table_name(connection: Connection, table: str) -> DatasetName:
    if connection.type == "sqlite":
        return DatasetName("sqlite", f"{connection.host or f'/{connection.schema}'}.{table}")
    schema, _, name = table.rpartition(".")
    return DatasetName(
        f"postgres://{_server(connection)}", f"{connection.schema or connection.login}.{schema or 'public'}.{name}"
    )


def _iceberg_name(connection: Connection, table: str) -> DatasetName:
    """Return the name of an Iceberg table in its catalog, whose server or database is the namespace."""
    if connection.type == "iceberg":
        parts = urlsplit(connection.host if "://" in connection.host else f"https://{connection.host}")
        port = f":{connection.port}" if connection.port and parts.port is None else ""
        return DatasetName(f"{parts.scheme}://{_authority(parts)}{port}", table)
    if connection.type == "sqlite":
        return DatasetName("iceberg+sqlite", f"{connection.host or f'/{connection.schema}'}.{table}")
    return DatasetName(f"iceberg+postgres://{_server(connection)}", f"{connection.schema or connection.login}.{table}")


def _server(connection: Connection) -> str:
    """Return host and port of a PostgreSQL server, without the rest of a password whose @ was not escaped."""
    return f"{connection.host.rpartition('@')[2]}:{connection.port or _PORTS['postgres']}"


def _url_name(target: Any, url: str) -> DatasetName:
    """Return the name of an http target; a path that a connection holds is replaced by the connection's id."""
    parts = urlsplit(url)
    path = parts.path if target.url else f"connection:{target.connection}"
    return DatasetName(f"{parts.scheme}://{_authority(parts)}", path or "/")


def _asset_name(uri: str) -> DatasetName:
    """Return the dataset of an asset's URI, as Airflow's providers translate it."""
    parts = urlsplit(uri)
    path = unquote(parts.path)
    if parts.scheme == "file":
        return DatasetName("file", path)
    if parts.scheme in ("postgres", "postgresql"):
        return DatasetName(f"postgres://{_authority(parts)}", path.strip("/").replace("/", "."))
    return DatasetName(f"{parts.scheme}://{_authority(parts)}", path.lstrip("/") or "/")


def _authority(parts: SplitResult) -> str:
    """Return host and port of a URL, without credentials."""
    return parts.netloc.rpartition("@")[2]
