"""Defines the rule-file fields of the target type `file`; it imports little, because all rule readers import it."""

from __future__ import annotations

from typing import Any, Literal

from eventbridge.config.target_locations import TargetLocations
from eventbridge.rules.address import path_error, path_obstacle
from eventbridge.rules.fields import Fields
from eventbridge.rules.model import Target, Transform
from eventbridge.rules.types import Obstacle, Takes, TargetType
from eventbridge.targets.file.location import PathRefused, location_of


class FileFields(Target):
    """A file to which deliveries are appended as lines; a relative `path` is resolved in the first allowed folder."""

    type: Literal["file"] = "file"
    path: str = ""


def _read_fields(fields: Fields, _: Transform | None) -> dict[str, Any]:
    path = fields.text("path", required=True)
    if path and (problem := path_error(path)):
        fields.add_to("path", *problem)
    return {"path": path}


def _obstacle(target: FileFields, locations: TargetLocations) -> Obstacle | None:
    if not target.path or path_error(target.path) is not None:
        return None
    try:
        location = location_of(target.path, locations)
        location.check()
    except PathRefused as error:
        return Obstacle("path", error.what, error.remedy)
    found = path_obstacle(location.path)
    return None if found is None else Obstacle("path", *found)


def _takes(_: FileFields) -> Takes:
    return "blocks"


FILE = TargetType(
    "file", FileFields, "eventbridge.targets.file.target:open_file", takes=_takes, read=_read_fields, obstacle=_obstacle
)
