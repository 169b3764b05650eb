"""What a segment of a streaming task says beside its outcomes."""

from __future__ import annotations

from msgspec import Struct


class Spent(Struct, frozen=True, tag_field="record", tag="spent"):
    """The CPU time, in microseconds, that a streaming task took for its outcomes: how many there are by
    `<rule>/<target>`.
    """

    cpu: int
    outcomes: dict[str, int]
