"""What all values of a rule file have in common: they never change, and know every field they are given."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value whose fields are fixed."""

    model_config = ConfigDict(frozen=True, extra="forbid")
