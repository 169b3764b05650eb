"""Catalogs of Apache Iceberg for tests: those of pyiceberg in SQLite and PostgreSQL, and the REST catalog of Iceberg's
own tests, which a Java process serves."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from demo.ports import reserve
from java_tools import ToolMissing, fetch, java_program, require
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from s3proxy.server import running
from services.cache import CACHE
from sqlalchemy import make_url

from eventbridge.config.connection import Connection

HERE: Final = Path(__file__).parent
JARS: Final = CACHE / "iceberg-1.10.0"
MAIN: Final = HERE / "IcebergCatalog.java"


@dataclass
class OwnCatalog:
    """A catalog of its own, and the connection that leads there."""

    catalog: Catalog
    connection: Connection
    warehouse: Path

    @property
    def variable(self) -> str:
        """The connection as the value of a variable."""
        each = self.connection
        fields = {"conn_type": each.type, "host": each.host, "schema": each.schema, "port": each.port}
        return json.dumps({**fields, "login": each.login, "extra": dict(each.extra)})

    def table(self, name: str, schema: Schema, **options: Any) -> Table:
        """Make a table, in the namespace that its name begins with."""
        self.catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
        return self.catalog.create_table(name, schema, **options)

    def files(self) -> set[Path]:
        """Return the data files of all tables, whether they have them or not."""
        return set(self.warehouse.rglob("*.parquet"))

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a table, as the catalog has it now."""
        found: list[dict[str, Any]] = self.catalog.load_table(name).scan().to_arrow().to_pylist()
        return found


def sqlite_catalog(folder: Path) -> OwnCatalog:
    """Return an empty catalog in a file of SQLite, with its warehouse in `folder`."""
    path = folder / "catalog.sqlite"
    (folder / "warehouse").mkdir()
    extra = {"warehouse": f"file://{folder}/warehouse"}
    catalog = SqlCatalog("default", uri=f"sqlite:///{path}", **extra)
    return OwnCatalog(catalog, Connection("lake", "sqlite", str(path), extra=extra), folder / "warehouse")


def postgresql_catalog(url: str, folder: Path) -> OwnCatalog:
    """Return an empty catalog in a database of PostgreSQL, with its warehouse in `folder`."""
    parts = make_url(url).set(drivername="postgresql+psycopg")
    (folder / "warehouse").mkdir()
    extra = {"warehouse": f"file://{folder}/warehouse"}
    catalog = SqlCatalog("default", uri=parts.render_as_string(hide_password=False), **extra)
    connection = Connection(
        "lake",
        "postgres",
        parts.host or "127.0.0.1",
        parts.port,
        parts.username or "",
        str(parts.password or ""),
        parts.database or "",
        extra,
    )
    return OwnCatalog(catalog, connection, folder / "warehouse")


@contextmanager
def rest_catalog(folder: Path) -> Iterator[OwnCatalog]:
    """Serve an empty REST catalog for the block, with its warehouse in `folder`; raises ToolMissing."""
    jars = fetch_iceberg()
    (folder / "warehouse").mkdir()
    port = reserve()
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", _class_path(jars)]
    command = [java_program("java"), *options, "IcebergCatalog", str(port)]
    command += [f"jdbc:sqlite:{folder}/rest.sqlite", f"file://{folder}/warehouse"]
    with running("iceberg", command, port, folder):
        url = f"http://127.0.0.1:{port}"
        yield OwnCatalog(RestCatalog("default", uri=url), Connection("lake", "iceberg", url), folder / "warehouse")


def _class_path(jars: Path) -> str:
    import pyspark

    hadoop = sorted((Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar"))  # for local files
    return ":".join([str(jars), f"{jars}/*", *map(str, hadoop)])


def fetch_iceberg() -> Path:
    """Return the folder of the jars and of the compiled server, filled if it is missing; raises ToolMissing."""
    require(java_program("javac"), "Java's compiler, 17 or later,", "openjdk-17-jdk-headless")
    made = JARS / "IcebergCatalog.class"
    done = JARS / ".fetched"
    if not done.exists():
        fetch("Iceberg's REST catalog", HERE / "iceberg-pom.xml", JARS)
        done.touch()
    if not made.exists() or made.stat().st_mtime < MAIN.stat().st_mtime:
        with tempfile.TemporaryDirectory(dir=JARS) as draft:  # another process may compile it now
            command = [java_program("javac"), "-cp", _class_path(JARS), "-d", draft, str(MAIN)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise ToolMissing(f"Iceberg's REST catalog does not compile: {done.stderr.strip()[-500:]}")
            (Path(draft) / made.name).replace(made)
    return JARS
