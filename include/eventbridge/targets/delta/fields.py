"""Defines the rule-file fields of the target type `delta`; it imports little, because all rule readers import it."""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from eventbridge.config.target_locations import TargetLocations
from eventbridge.rules.address import path_error
from eventbridge.rules.fields import Fields
from eventbridge.rules.model import Transform
from eventbridge.rules.types import Obstacle, TargetType
from eventbridge.targets.file.location import FileLocation, PathRefused, location_of
from eventbridge.targets.table_fields import TABLE_WORDS, TableFields, read_table_fields

_BUCKET: Final = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/([\w=-][\w.=-]*(?:/[\w=-][\w.=-]*)*)", re.ASCII)


class DeltaFields(TableFields):
    """A Delta table at `table`, a path below an allowed folder or `s3://bucket/prefix`."""

    type: Literal["delta"] = "delta"
    connection: str = ""
    table: str = ""

    @property
    def bucket_and_prefix(self) -> tuple[str, str] | None:
        """The bucket and the prefix of the table, None if it is in a folder."""
        found = _BUCKET.fullmatch(self.table)
        return None if found is None else (found[1], found[2])


def _read_fields(fields: Fields, transform: Transform | None) -> dict[str, Any]:
    table, connection = fields.text("table", required=True).rstrip("/"), fields.name("connection")
    if table.startswith("s3://"):
        if not _BUCKET.fullmatch(table):
            remedy = "Write s3://bucket/prefix with parts of A-Z a-z 0-9 _ - . =, such as s3://lake/orders"
            fields.add_to("table", f"{table[:200]!r} is not the address of a table", remedy)
        if not connection and not fields.has("connection"):
            fields.add_to("table", "a table in S3 needs a connection", "Add connection: ...")
    elif "://" in table:
        remedy = "Write s3://bucket/prefix, or a path"
        fields.add_to("table", f"{table[:200]!r} is neither in S3 nor in a folder", remedy)
    elif table.rpartition("/")[2] == "." or (not table and fields.has("table")):
        fields.add_to("table", f"{table!r} is not a folder of its own", "Name one, such as lake/orders")
    elif table and (problem := path_error(table)) is not None:
        fields.add_to("table", *problem)
    elif connection:
        what = "a table in a folder needs no connection"
        fields.add_to("connection", what, "Remove it, or write table: s3://bucket/prefix")
    return {
        "connection": connection,
        "table": table,
        **read_table_fields(fields, transform),
    }


def folder_of(target: DeltaFields, locations: TargetLocations) -> FileLocation:
    """Return where the folder of a table is. Raises PathRefused."""
    location = location_of(target.table, locations)
    location.check()
    return location


def obstacle_of(target: DeltaFields, locations: TargetLocations) -> Obstacle | None:
    """Return why the table cannot be written on this machine, or where the installation keeps its own data."""
    bucket = target.bucket_and_prefix
    if bucket is not None:
        is_own = locations.owns_prefix(*bucket) or locations.surrounds_prefix(*bucket)
    elif not target.table or path_error(target.table) is not None:
        return None
    else:
        try:
            location = folder_of(target, locations)
        except PathRefused as error:
            return Obstacle("table", error.what, error.remedy)
        is_own = locations.surrounds_folder(location.path)
    if is_own:
        message = f"{target.table!r} is where EventBridge keeps its own data or rule files, or around it"
        return Obstacle("table", message, "Name another place")
    return None


DELTA = TargetType(
    "delta",
    DeltaFields,
    "eventbridge.targets.delta.target:open_delta",
    takes="spans",
    read=_read_fields,
    obstacle=obstacle_of,
    words=("connection", "table", *TABLE_WORDS),
)
