"""The requests of one round as a target takes them: each is asked for at the moment that there is room for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import overload

from eventbridge.targets.protocol import Request


class RequestFeed(Sequence[Request]):
    """Requests of which `may_send` can still hold back the rest while the first are on their way.

    It is asked with how many are left, the one that it is asked about included. A target that iterates, once, ends its
    round once it says no, having waited for what is in flight; what it did not take was not sent. By index there is
    everything. None says neither yes nor no: only `steps.MultiplexedTarget` can be told so, and asks again later.
    """

    def __init__(self, requests: Sequence[Request], may_send: Callable[[Request, int], bool | None]) -> None:
        self._requests = requests
        self._may_send = may_send
        self.left = len(requests)  # not taken yet

    def __iter__(self) -> Iterator[Request]:
        """Yield requests until one may not be sent."""
        for request in self._requests:
            while (word := self._may_send(request, self.left)) is None:
                yield None  # type: ignore[misc]  # to a seated target only
            if not word:
                return
            self.left -= 1
            yield request

    def __len__(self) -> int:
        return len(self._requests)

    @overload
    def __getitem__(self, index: int) -> Request: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Request]: ...

    def __getitem__(self, index: int | slice) -> Request | Sequence[Request]:
        return self._requests[index]
