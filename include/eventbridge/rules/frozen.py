"""The base class of all values of a rule file: immutable, and without unknown fields."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class FrozenModel(BaseModel):
    """An immutable value.

    `LATER` names the fields that were added after the first version: they are frozen only if they differ from their
    defaults, so that other values keep their hash and an older version can read them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    LATER: ClassVar[tuple[str, ...]] = ()
