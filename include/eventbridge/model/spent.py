"""The record of a streaming task's segment beside its outcomes."""

from __future__ import annotations

from msgspec import Struct


class Spent(Struct, frozen=True, tag_field="record", tag="spent"):
    """The CPU time, in microseconds, of a streaming task for its outcomes, and their number by `<rule>/<target>`."""

    cpu: int
    outcomes: dict[str, int]
