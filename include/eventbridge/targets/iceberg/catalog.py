"""Opens the Iceberg catalog of a connection: a REST catalog, or the tables of pyiceberg's SQL catalog in PostgreSQL or
SQLite.

Only known properties reach pyiceberg. Others could make it import code, such as `py-io-impl`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.rest.auth import AuthManager
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.metadata import TableMetadata
from requests import PreparedRequest, Session
from requests import Response as HttpResponse
from requests.adapters import HTTPAdapter
from sqlalchemy import URL

from eventbridge.config.connection import Connection, require_type
from eventbridge.config.redaction import SecretForm, forms_of
from eventbridge.config.target_locations import TargetLocations
from eventbridge.errors import ConnectionUnusable
from eventbridge.rules.fields import is_secret_name

_TYPES: Final = ("iceberg", "postgres", "postgresql", "sqlite")
#: Properties of pyiceberg that an extra of a connection may set: where files are, and how they are written.
_FILES: Final = frozenset(
    {
        "warehouse",
        "s3.endpoint",
        "s3.region",
        "s3.access-key-id",
        "s3.secret-access-key",
        "s3.session-token",
        "s3.role-arn",
        "s3.role-session-name",
        "s3.force-virtual-addressing",
        "s3.proxy-uri",
    }
)
#: Those of REST catalogs only.
_REST: Final = frozenset(
    {
        "oauth2-server-uri",
        "scope",
        "audience",
        "resource",
        "rest.sigv4-enabled",
        "rest.signing-region",
        "rest.signing-name",
    }
)
_OWN: Final = frozenset({"catalog_name", "ca_certificate"})
#: The extras of a PostgreSQL connection that libpq knows, as Airflow's connections have them.
_LIBPQ: Final = ("sslmode", "sslrootcert", "sslcert", "sslkey", "target_session_attrs")


def catalog_opener(
    connection: Connection, use: str, locations: TargetLocations, seconds: float
) -> Callable[[], Catalog]:
    """Return a function that opens the catalog of a connection; that of a REST catalog asks for its configuration.

    `use` says who needs it, as in "target 'crm' of rule 'orders'". A request to the catalog may take `seconds`. Raises
    ConnectionUnusable.
    """
    require_type(connection, _TYPES, use)
    name = str(connection.extra.get("catalog_name") or "default")
    properties: dict[str, Any] = {"s3.connect-timeout": str(min(5.0, seconds)), "s3.request-timeout": str(seconds)}
    properties |= _texts(connection.extra, _FILES)
    if connection.type == "iceberg":
        return partial(_Rest, name, seconds, **_rest_properties(connection), **properties)
    if "warehouse" in properties and (problem := own_data(properties["warehouse"], locations)):
        raise ConnectionUnusable(
            f"Connection {connection.id!r}: the warehouse {problem}. Name another folder or prefix."
        )
    url = _sqlite(connection, locations, seconds) if connection.type == "sqlite" else _postgresql(connection, seconds)
    uri = url.render_as_string(hide_password=False)
    return partial(SqlCatalog, name, uri=uri, init_catalog_tables="false", **properties)


def secrets_of(connection: Connection) -> Sequence[SecretForm]:
    """Return the secrets of a connection, which errors must not show."""
    named = [str(value) for name, value in connection.extra.items() if is_secret_name(name) or "access-key" in name]
    return forms_of(each for each in (connection.password, *named) if each)


def own_data(location: str, locations: TargetLocations) -> str | None:
    """Return that a URI or path is where EventBridge keeps its own data, or None if it is elsewhere."""
    folder, bucket = _place(location)
    if folder is not None:
        is_own = locations.owns_file(str(folder.parent), [folder.name])
    else:
        is_own = bucket is not None and locations.owns_prefix(*bucket)
    return f"{location!r} is where EventBridge keeps its own data or rule files" if is_own else None


def own_data_of(metadata: TableMetadata, locations: TargetLocations) -> str | None:
    """Return that a table lies where EventBridge keeps its own data, or around it; None if it does not."""
    properties = metadata.properties
    for each in (metadata.location, properties.get("write.data.path"), properties.get("write.metadata.path")):
        if each and (problem := own_data(each, locations)):
            return problem
        folder, bucket = _place(each or "")
        if folder is not None and each and locations.surrounds_folder(str(folder)):
            return f"{each!r} is around the folders of EventBridge itself"
        if bucket is not None and locations.surrounds_prefix(*bucket):
            return f"{each!r} is around where EventBridge keeps its own data"
    return None


def _place(location: str) -> tuple[Path | None, tuple[str, str] | None]:
    """Return the folder at a URI or path, or its bucket and prefix in S3."""
    parts = urlsplit(location)
    if parts.scheme in ("", "file"):
        return Path(unquote(parts.path) if parts.scheme else location), None
    return None, ((parts.netloc, parts.path) if parts.scheme in ("s3", "s3a", "s3n") else None)


def is_on_this_host(metadata: TableMetadata) -> bool:
    """Return whether the files of a table are in a folder of this host."""
    folder, _ = _place(metadata.location)
    return folder is not None and folder.is_dir()


def _texts(extra: Mapping[str, Any], names: frozenset[str]) -> dict[str, str]:
    return {name: str(value) for name, value in extra.items() if name in names and value not in (None, "")}


def _rest_properties(connection: Connection) -> dict[str, Any]:
    unknown = sorted(set(connection.extra) - _FILES - _REST - _OWN)
    if unknown:
        known = ", ".join(sorted(_FILES | _REST | _OWN))
        raise ConnectionUnusable(
            f"Connection {connection.id!r} of type iceberg has the unknown extra {unknown[0]!r}. Known extras: {known}."
        )
    properties: dict[str, Any] = {"uri": _uri(connection), **_texts(connection.extra, _REST)}
    # a server could otherwise ask for the newest snapshots only, which would hide earlier appends
    properties["snapshot-loading-mode"] = "all"
    if connection.login and connection.password:
        properties["credential"] = f"{connection.login}:{connection.password}"
        properties.setdefault("oauth2-server-uri", f"{properties['uri'].rstrip('/')}/v1/oauth/tokens")  # or it warns
    elif connection.password:
        properties["token"] = connection.password
    if certificate := connection.extra.get("ca_certificate"):
        properties["ssl"] = {"cabundle": str(certificate)}
    return properties


def _uri(connection: Connection) -> str:
    host = connection.host
    url = host if "://" in host else f"https://{host}"
    try:
        parts = urlsplit(url)
        has_port = parts.port is not None
    except ValueError:
        parts, has_port = urlsplit(""), False
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise ConnectionUnusable(
            f"Connection {connection.id!r} must have the URL of the REST catalog as its host, such as "
            "https://catalog.example/api, with login and password in their own fields."
        )
    port = f":{connection.port}" if connection.port and not has_port else ""
    path = parts.path or (f"/{connection.schema}" if connection.schema else "")
    return f"{parts.scheme}://{parts.netloc}{port}{path}"


def _sqlite(connection: Connection, locations: TargetLocations, seconds: float) -> URL:
    path = Path(connection.host or f"/{connection.schema}")
    if not path.is_absolute():
        raise ConnectionUnusable(
            f"Connection {connection.id!r} must have the absolute path of a SQLite file as its host."
        )
    if locations.owns_file(str(path.parent), [path.name]):
        raise ConnectionUnusable(f"Connection {connection.id!r} names a file of EventBridge itself. Name another file.")
    if not path.is_file():
        raise ConnectionUnusable(
            f"Connection {connection.id!r}: there is no file {str(path)!r}. Create the catalog with pyiceberg first."
        )
    return URL.create("sqlite", database=str(path), query={"timeout": str(seconds)})


def _postgresql(connection: Connection, seconds: float) -> URL:
    if not connection.host:
        raise ConnectionUnusable(
            f"Connection {connection.id!r} names no host. Give it the host of the PostgreSQL server."
        )
    milliseconds = round(seconds * 1_000)
    query = {name: str(connection.extra[name]) for name in _LIBPQ if connection.extra.get(name)}
    query["connect_timeout"] = str(max(2, round(seconds)))
    query["application_name"] = "eventbridge"
    query["options"] = f"-c statement_timeout={milliseconds} -c lock_timeout={milliseconds}"
    return URL.create(
        "postgresql+psycopg",
        connection.login or None,
        connection.password or None,
        connection.host,
        connection.port or 5432,
        connection.schema or None,
        query,
    )


class _Timed(HTTPAdapter):
    """Limits how long a connection, and a pause in a response, may take; pyiceberg sets no limit."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def send(self, request: PreparedRequest, *args: Any, **options: Any) -> HttpResponse:
        options["timeout"] = options.get("timeout") or self._seconds
        return super().send(request, *args, **options)


class _Rest(RestCatalog):
    """A REST catalog whose requests have a time limit."""

    def __init__(self, name: str, seconds: float, **properties: Any) -> None:
        self._seconds = seconds
        super().__init__(name, **properties)

    def _create_legacy_oauth2_auth_manager(self, session: Session) -> AuthManager:
        # called before the first request of each session
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Timed(self._seconds))
        return super()._create_legacy_oauth2_auth_manager(session)
