"""The place of rule files, a folder of this host or a prefix of a bucket, and the rules of new batches."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeGuard

from pydantic import AfterValidator, BeforeValidator, ValidationInfo


def in_bucket(place: object) -> TypeGuard[str]:
    """Return whether a place is a bucket prefix, `s3://connection@bucket/prefix`."""
    return isinstance(place, str) and place.startswith("s3://")


def _folder_or_bucket(value: object) -> object:
    return Path(value) if isinstance(value, str) and not in_bucket(value) else value


def _published_from_bucket(value: str, others: ValidationInfo) -> str:
    if value == "files" and in_bucket(others.data.get("rules_folder")):
        raise ValueError(
            "rule files in a bucket hold once they are published. "
            "Set it to published, and run `eventbridge rules publish`"
        )
    return value


FolderOrBucket = Annotated[Path | str, BeforeValidator(_folder_or_bucket)]
RulesFrom = Annotated[Literal["files", "published"], AfterValidator(_published_from_bucket)]
