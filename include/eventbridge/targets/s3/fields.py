"""Defines the rule-file fields of the target type `s3`; it imports little, because all rule readers import it."""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from eventbridge.config.target_locations import TargetLocations
from eventbridge.rules.fields import Fields
from eventbridge.rules.model import Target, Transform
from eventbridge.rules.types import Obstacle, Takes, TargetType

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX: Final = re.compile(r"[\w!*'()=-][\w.!*'()=-]*(/[\w!*'()=-][\w.!*'()=-]*)*", re.ASCII)

FORMATS: Final = ("jsonl", "parquet")

#: Fields about single deliveries, which S3 targets do not have because a span is sent, retried and dead-lettered as
#: one.
_SINGLE_DELIVERY_FIELDS: Final = ("ordering_key", "not_before", "deliver_within")


class S3Fields(Target):
    """A bucket, and a prefix in it under which each span of deliveries becomes an object."""

    type: Literal["s3"] = "s3"
    connection: str = ""
    bucket: str = ""
    prefix: str = ""
    format: Literal["jsonl", "parquet"] = "jsonl"


def _read_fields(fields: Fields, _: Transform | None) -> dict[str, Any]:
    bucket, prefix = fields.text("bucket", required=True), fields.text("prefix")
    if bucket and not _BUCKET.fullmatch(bucket):
        fields.add_to("bucket", f"{bucket!r} is not a valid bucket name", "Write 3 to 63 characters of a-z 0-9 . -")
    if prefix and not _PREFIX.fullmatch(prefix):
        remedy = "Write parts of A-Z a-z 0-9 _ - . = ! * ' ( ) with / between them, such as orders/big"
        fields.add_to("prefix", f"{prefix!r} is not a valid prefix", remedy)
    what = "{} applies to single deliveries, but a target of type s3 takes many deliveries as one object"
    fields.refuse(_SINGLE_DELIVERY_FIELDS, what, "Remove it")
    tolerance = fields.get("errors_tolerance")
    if tolerance is not None and tolerance.value == "none":
        fields.refuse(
            ["errors_tolerance"],
            "{}: none requires ordered deliveries, but the objects of a bucket have no order",
            "Remove it",
        )
    return {
        "connection": fields.name("connection", required=True),
        "bucket": bucket,
        "prefix": prefix,
        "format": fields.choice("format", "jsonl", FORMATS),
        "timeout_seconds": fields.duration("timeout", 30.0, 1.0, 30.0),
    }


def _takes(_: S3Fields) -> Takes:
    return "spans"


def obstacle_of(target: S3Fields, locations: TargetLocations) -> Obstacle | None:
    """Return why the target would write where the installation keeps its own data, or None if it would not."""
    if not locations.owns_prefix(target.bucket, target.prefix):
        return None
    where = f"the prefix {target.prefix!r} of the bucket" if target.prefix else "the bucket"
    message = f"{where} {target.bucket!r} is where EventBridge keeps its own data or rule files"
    return Obstacle("bucket", message, "Write to another prefix or bucket")


S3 = TargetType(
    "s3",
    S3Fields,
    "eventbridge.targets.s3.target:open_s3",
    takes=_takes,
    read=_read_fields,
    obstacle=obstacle_of,
    words=("connection", "bucket", "prefix", "format", "timeout"),
)
