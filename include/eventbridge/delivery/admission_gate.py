"""The requests of one round: each is admitted at the moment when the target has capacity for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import overload

from eventbridge.targets.protocol import Request


class RequestFeed(Sequence[Request]):
    """A sequence of requests, of which `may_send` can withhold the rest while the first ones are in flight.

    `may_send` is called with the request and the number of requests left, this one included. A target iterates once.
    When `may_send` returns False, the target waits for its requests in flight and ends the round; requests that it did
    not take were not sent. By index every request is available. None means neither: only a `steps.MultiplexedTarget`
    can receive it, and asks again later.
    """

    def __init__(self, requests: Sequence[Request], may_send: Callable[[Request, int], bool | None]) -> None:
        self._requests = requests
        self._may_send = may_send
        self.left = len(requests)  # not taken yet

    def __iter__(self) -> Iterator[Request]:
        """Yield requests until one may not be sent."""
        for request in self._requests:
            while (may_send := self._may_send(request, self.left)) is None:
                yield None  # type: ignore[misc]  # to a target with a transfer slot only
            if not may_send:
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
