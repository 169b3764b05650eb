"""Implements the HTTP target with batch requests, each of which carries several deliveries in one JSON array."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime

from eventbridge.model.outcome import Response
from eventbridge.model.redelivery import REPLAY_ID_HEADER
from eventbridge.policy import batch_request
from eventbridge.policy.batch_request import Candidate, Kind, Limits, ResponseContent, read_response
from eventbridge.targets.http.access import Access
from eventbridge.targets.http.endpoint import Endpoint
from eventbridge.targets.http.engine import TransferSlot
from eventbridge.targets.http.exchange import KEPT_BYTES, Exchange
from eventbridge.targets.http.target import HttpTarget
from eventbridge.targets.lines import holds_json
from eventbridge.targets.protocol import Request
from eventbridge.targets.steps import Step

#: The maximum length of the stored response text of one delivery.
_ERROR_CHARACTERS = 1_000


@dataclass(slots=True)
class _BatchRequest(Request):
    """A request with one or more deliveries; `joined` is False for a delivery that cannot be an item of an array."""

    items: tuple[Request, ...] = ()
    joined: bool = True
    content: ResponseContent = field(default=ResponseContent(b""))  # the content of its response
    veil: Callable[[bytes], bytes] = bytes


class BatchingHttpTarget(HttpTarget):
    """Delivers to one URL, at most `max_in_flight` batch requests at a time, each a JSON array within `limits`.

    A batch request's `webhook-id` is `batch_request.batch_request_id`; `webhook-ids` lists the delivery ids in the
    order of the items. A delivery that is not JSON in UTF-8, or has its own headers, is sent as by `HttpTarget`. A
    batch request does not wait until it is full. `batch_request.read_response` interprets a response. An unjudged
    delivery (see `protocol.Target`) gets no response in that `deliver`, and the caller sends it again.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        limits: Limits,
        max_in_flight: int,
        access: Access,
        clock: Callable[[], datetime],
    ) -> None:
        super().__init__(endpoint, max_in_flight=max_in_flight, access=access, clock=clock)
        self._limits = limits
        # the maximum size of the next batch request of a delivery, by its id, after a batch request was refused
        self._most: dict[str, int] = {}
        self._sent: dict[int, _BatchRequest] = {}

    def steps(
        self, requests: Iterable[Request | None], until: datetime, slot: TransferSlot
    ) -> Generator[Step, None, None]:
        """Send every request, in batch requests."""
        assert isinstance(requests, Sequence), "requests are inspected by index before they are taken"
        if not requests:
            return
        self._sent.clear()
        self.more_of_response = 0
        with closing(super().steps(self._batch_requests(requests), until, slot)) as steps:
            for step in steps:
                if isinstance(step, tuple):
                    number, response = step
                    yield from self._judged(self._sent.pop(number), response)
                else:
                    yield step

    def _batch_requests(self, requests: Sequence[Request]) -> Iterator[_BatchRequest | None]:
        """Yield batch requests; requests are consumed only when there is capacity, and only those that fit.

        It yields None if the next request must wait; the requests already taken are then sent without it.
        """
        taken = iter(requests)
        seen: dict[int, Kind | None] = {}
        first = 0
        while first < len(requests):
            count = batch_request.together(self._candidates(requests, first, seen), self._limits)
            items, held_back = _take(taken, count)
            if items:
                made = _batch_request(first, items, seen[first])
                self._sent[first] = made
                yield made
            if held_back:
                yield None
            elif len(items) < count:  # the iterator has ended, and no further request may be sent
                return
            for index in range(first, first + len(items)):
                del seen[index]
            first += len(items)

    def _candidates(self, requests: Sequence[Request], first: int, seen: dict[int, Kind | None]) -> Iterator[Candidate]:
        """Yield the requests from index `first` on as candidates; `seen` caches their kinds by index."""
        for index in range(first, len(requests)):
            request = requests[index]
            if index not in seen:
                seen[index] = _kind(request)
            most = self._most.get(request.delivery_id, self._limits.count)
            yield Candidate(seen[index], len(request.payload), most)

    def _judged(self, sent: _BatchRequest, response: Response) -> Iterator[tuple[int, Response]]:
        if not sent.joined:
            yield sent.items[0].index, response
            return
        reading = read_response(response, sent.content, [request.delivery_id for request in sent.items])
        if reading.most is not None:
            size_bytes = len(sent.payload)
            self._limits = batch_request.limits_after_refusal(self._limits, response.code, len(sent.items), size_bytes)
            self._most.update((request.delivery_id, reading.most) for request in sent.items)
        self.more_of_response = sum(its is not None for its in reading.responses)
        for request, its in zip(sent.items, reading.responses, strict=True):
            if its is None:
                continue
            self._most.pop(request.delivery_id, None)
            self.more_of_response -= 1
            yield request.index, its if its is response else _veiled(its, sent.veil)

    def _read_response(self, exchange: Exchange, request: Request, error_number: int, message: str) -> Response:
        assert isinstance(request, _BatchRequest), "nothing else is sent"
        request.content, request.veil = exchange.content(), exchange.veiled
        return super()._read_response(exchange, request, error_number, message)

    def _lines_of(self, request: Request, now: datetime) -> list[str | bytes]:
        lines = super()._lines_of(request, now)
        assert isinstance(request, _BatchRequest), "nothing else is sent"
        if request.joined:
            lines.append(
                f"{self._endpoint.prefix}-ids: {batch_request.ids_text([each.delivery_id for each in request.items])}"
            )
        return lines


def _take(requests: Iterator[Request | None], count: int) -> tuple[tuple[Request, ...], bool]:
    """Take up to a number of requests, and return those that may be sent now and whether the next one must wait."""
    items: list[Request] = []
    for request in itertools.islice(requests, count):
        if request is None:
            return tuple(items), True
        items.append(request)
    return tuple(items), False


def _kind(request: Request) -> Kind | None:
    others = request.headers.keys() - {REPLAY_ID_HEADER}
    kind = None if others else batch_request.kind_of(request.content_type)
    return kind if kind is not None and holds_json(request.payload) else None


def _batch_request(number: int, items: tuple[Request, ...], kind: Kind | None) -> _BatchRequest:
    if kind is None:
        [alone] = items
        return _BatchRequest(
            number, alone.delivery_id, alone.payload, alone.content_type, alone.headers, items=items, joined=False
        )
    return _BatchRequest(
        number,
        batch_request.batch_request_id([each.delivery_id for each in items]),
        batch_request.join_payloads([each.payload for each in items]),
        batch_request.MEDIA_TYPES[kind],
        # the replay header is omitted unless all deliveries are of one replay
        items[0].headers if all(each.headers == items[0].headers for each in items) else {},
        items=items,
    )


def _veiled(response: Response, veil: Callable[[bytes], bytes]) -> Response:
    """Return a response without secrets, truncated to the stored length."""
    error = None if response.error is None else veil(response.error.encode(errors="backslashreplace")).decode()
    shown = None if error is None else error[:_ERROR_CHARACTERS]
    return response._replace(error=shown, response_head=veil(response.response_head)[:KEPT_BYTES])
