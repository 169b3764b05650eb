"""The order in which waiting work is served. Pure; called when batches are planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeVar

Each = TypeVar("Each")


def round_robin(waiting: Mapping[Each, datetime], served: Mapping[Each, str]) -> list[Each]:
    """Return what waits since some time in the order in which it is to be served: a backlog has one turn a round.

    What was never served comes first, what was served last comes last (`served`: by which batch, their ids sort by
    time); of two that were served together the one that waits longer comes first.
    """
    return sorted(waiting, key=lambda each: (served.get(each, ""), waiting[each]))


def fair_shares(room: int, wants: Sequence[int], weights: Sequence[int] | None = None) -> list[int]:
    """Return how much of `room` each gets: nobody more than it wants, nor more than another that wants as much.

    With `weights`, whole numbers from 1 on, one that has twice another's gets twice as much. What does not come out
    even goes to the first ones, by one each.
    """
    shares = [0] * len(wants)
    hungry = [index for index, want in enumerate(wants) if want > 0]
    while room > 0 and hungry:
        at_once = room // (len(hungry) if weights is None else sum(weights[index] for index in hungry))
        for index in hungry[:room]:
            each = max(1, at_once * (1 if weights is None else weights[index]))
            given = min(each, wants[index] - shares[index], room)
            shares[index] += given
            room -= given
        hungry = [index for index in hungry if shares[index] < wants[index]]
    return shares
