"""The order in which waiting work is served. Pure; called when batches are planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeVar

Each = TypeVar("Each")


def round_robin(waiting: Mapping[Each, datetime], served: Mapping[Each, str]) -> list[Each]:
    """Return waiting work in the order in which to serve it: a backlog gets one turn a round.

    Work that was never served comes first, the most recently served comes last (`served`: by which batch; their ids
    sort by time). If two were served together, the one that has waited longer comes first.
    """
    return sorted(waiting, key=lambda each: (served.get(each, ""), waiting[each]))


def fair_shares(room: int, wants: Sequence[int], weights: Sequence[int] | None = None) -> list[int]:
    """Return the share of `room` for each: never more than it wants, and equal shares for equal wants.

    With `weights`, whole numbers from 1 on, twice the weight gets twice the share. The remainder goes to the first
    ones, one each.
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
