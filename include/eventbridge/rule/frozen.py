"""What all values of a rule file have in common: they never change, and know every field they are given."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class FrozenModel(BaseModel):
    """A value whose fields are fixed.

    `LATER` names the fields that came after a version that froze such values: they are frozen only where they say
    something. What says nothing of them has the hash that it had, and the version before reads it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    LATER: ClassVar[tuple[str, ...]] = ()
