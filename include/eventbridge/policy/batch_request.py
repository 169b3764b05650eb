"""Decides which deliveries of a target one batch request carries, and interprets the response for each.

If a response is malformed, EventBridge does not guess what it means, but sends all deliveries of the request again. A
target can recognise a repeated delivery by its id, but a delivery that is wrongly counted as delivered is lost.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, NoReturn

from eventbridge.event.ids import delivery_id_text
from eventbridge.model.outcome import Response

#: The kinds of items in a JSON array: complete events or other JSON values. One array never contains both.
Kind = Literal["events", "values"]
#: The content type of an array, by kind (CloudEvents HTTP binding 1.0.2, 3.3).
MEDIA_TYPES: Final[dict[Kind, str]] = {"events": "application/cloudevents-batch+json", "values": "application/json"}
_EVENT = "application/cloudevents+json"
_JSON = re.compile(r"[^/;\s]+/(?:[^;\s]*\+)?json", re.IGNORECASE)
_UTF8 = re.compile(r'charset="?utf-?8"?', re.IGNORECASE)

#: The members of a response body that give the result of each delivery. All other 2xx bodies are ignored.
RESULTS: Final = "delivery_results"
INDEX: Final = "acknowledge_index"
#: The status codes that one delivery or the size of the request may cause. A batch request that gets one of them is
#: sent again in halves.
DIVISIBLE: Final = frozenset({400, 413, 422, 431})
_JSON_TYPE = re.compile(r"\s*[^/;\s]+/(?:[^;\s]*\+)?json\s*(?:;.*)?", re.IGNORECASE | re.DOTALL)
#: The error recorded for an item instead of the target's own text, which may quote the event. Users without the scope
#: for payloads see errors but no recorded responses.
_SEE_RESPONSE = "the recorded response has the target's error text"


@dataclass(frozen=True)
class Limits:
    """The maximum number of deliveries and of bytes in a batch request; a single delivery may be larger."""

    count: int
    size_bytes: int


class Candidate(NamedTuple):
    """A delivery to send next, in a batch request of at most `most` deliveries; if `kind` is None, always alone."""

    kind: Kind | None
    size_bytes: int
    most: int


def kind_of(content_type: str) -> Kind | None:
    """Return which kind of item a payload of this content type can be; None if it cannot be an item.

    A delivery whose content type has parameters other than `charset=utf-8` is sent alone, because the array's content
    type would lose them.
    """
    media_type, *parameters = (part.strip() for part in content_type.split(";"))
    if not _JSON.fullmatch(media_type) or not all(_UTF8.fullmatch(each) for each in parameters):
        return None
    return "events" if media_type.lower() == _EVENT else "values"


def together(candidates: Iterable[Candidate], limits: Limits) -> int:
    """Return how many of the next deliveries, in order, to send in one request: at least one, or 0 if there are none.

    At most one candidate beyond the request is consumed.
    """
    count, size_bytes, most = 0, 1, limits.count
    first: Kind | None = None
    for candidate in candidates:
        size_bytes += candidate.size_bytes + 1  # including the comma before it or, for the first, the brackets
        if count == 0:
            first = candidate.kind
            if first is None:
                return 1
        elif candidate.kind != first or size_bytes > limits.size_bytes:
            break
        most = min(most, candidate.most)
        if count >= most:
            break
        count += 1
    return count


def limits_after_refusal(limits: Limits, code: int | None, count: int, size_bytes: int) -> Limits:
    """Return the limits after a batch request of `count` deliveries and a body of `size_bytes` was refused with `code`.

    After 413, the next requests have at most half the bytes; after 431 (too many ids for a header), at most half the
    deliveries. After any other code, or for a single delivery, the limits stay as they are.
    """
    if count > 1 and code == 413:
        return Limits(limits.count, min(limits.size_bytes, size_bytes // 2))
    if count > 1 and code == 431:
        return Limits(min(limits.count, max(1, count // 2)), limits.size_bytes)
    return limits


def join_payloads(payloads: Sequence[bytes]) -> bytes:
    """Return one JSON array of JSON values, without changing their bytes."""
    return b"[" + b",".join(payloads) + b"]"


def ids_text(ids: Sequence[str]) -> str:
    """Return delivery ids as the value of the `webhook-ids` header: in the order of the items, separated by commas."""
    return ",".join(ids)


def batch_request_id(ids: Sequence[str]) -> str:
    """Return the `webhook-id` of a batch request: a single delivery's own id, else a UUIDv8 made of 16 bytes of
    SHA-256.

    The UUID is derived from `ids_text`, so the same deliveries in the same order have the same id, and a signature,
    which covers `webhook-id`, covers the list too.
    """
    if len(ids) == 1:
        return ids[0]
    raw = bytearray(hashlib.sha256(ids_text(ids).encode()).digest()[:16])
    raw[6] = (raw[6] & 0x0F) | 0x80
    raw[8] = (raw[8] & 0x3F) | 0x80
    return delivery_id_text(bytes(raw))


class ResponseContent(NamedTuple):
    """The content of a 2xx response: the complete body, and two headers as received."""

    body: bytes
    content_type: str = ""
    retry_after: str | None = None


class Reading(NamedTuple):
    """The response to each delivery of a batch request, in order.

    A response is None if the target has not processed the delivery, which is then sent again as if for the first time.
    `most` is the maximum number of deliveries in the target's next batch request; None for no limit.
    """

    responses: tuple[Response | None, ...]
    most: int | None = None


class _Unclear(Exception):
    """The body of a response cannot be interpreted; the message says why."""


def read_response(response: Response, content: ResponseContent, ids: Sequence[str]) -> Reading:
    """Return what a response means for each delivery of a batch request; `ids` are their ids, in order.

    A 2xx response applies to all deliveries unless its body has results or an acknowledge index. Any other response
    also applies to all, except that a request with several deliveries is sent again in halves after a status in
    `DIVISIBLE`.
    """
    count = len(ids)
    if not response.accepted:
        if count > 1 and response.code in DIVISIBLE and not response.abort:
            return Reading((None,) * count, most=(count + 1) // 2)
        return Reading((response,) * count)
    try:
        members = _result_members(content, response.code)
        if members is None:
            return Reading((response,) * count)
        if RESULTS in members and INDEX in members:
            raise _Unclear(f"it has both {RESULTS} and {INDEX}")
        if RESULTS in members:
            return Reading(_responses_by_result(response, content, members[RESULTS], ids))
        return Reading(_responses_by_index(response, content, members[INDEX], count))
    except _Unclear as problem:
        why = f"the response (status {response.code}) cannot be read: {problem}"
        return Reading((_refuse(response, content, "UnclearResults", why),) * count)


def _result_members(content: ResponseContent, code: int | None) -> dict[str, Any] | None:
    """Return the JSON object in the body if it has results or an acknowledge index; None if only the status counts.

    Raises _Unclear if the body should have one of them, but cannot be interpreted.
    """
    declared = _JSON_TYPE.fullmatch(content.content_type) is not None
    named = RESULTS.encode() in content.body or INDEX.encode() in content.body  # for any declared content type
    value = None
    if content.body.strip() and (declared or named or code == 207):
        try:
            value = json.loads(
                content.body.decode(), parse_constant=_reject_constant, object_pairs_hook=_reject_repeated
            )
        except (ValueError, RecursionError):
            raise _Unclear("it must be JSON, but it is not, or it is truncated") from None
    if isinstance(value, dict) and (RESULTS in value or INDEX in value):
        return value
    if code == 207:
        raise _Unclear(f"status 207 promises results, but the body has neither {RESULTS} nor {INDEX}")
    return None


def _responses_by_index(
    response: Response, content: ResponseContent, index: Any, count: int
) -> tuple[Response | None, ...]:
    if type(index) is not int or not 0 <= index <= count:
        raise _Unclear(f"{INDEX} must be a whole number from 0 to {count}, the number of deliveries")
    if index == count:
        return (response,) * count
    refused = _refuse(response, content, "NotAcknowledged", f"the target acknowledged {index} of {count}")
    # Only the first unacknowledged delivery failed; a pause that the target asks for applies to all.
    behind = None if content.retry_after is None else refused
    return ((response,) * index) + (refused,) + (behind,) * (count - index - 1)


def _responses_by_result(
    response: Response, content: ResponseContent, results: Any, ids: Sequence[str]
) -> tuple[Response, ...]:
    if not isinstance(results, list) or not all(isinstance(each, dict) for each in results):
        raise _Unclear(f"{RESULTS} must be a list of objects, one for each delivery")
    named = sum("id" in each for each in results)
    if named not in (0, len(results)):
        raise _Unclear(f"{named} of {len(results)} results have an id: all or none must have one")
    responses = [_item_response(response, content, each) for each in results]
    if not named:
        if len(responses) != len(ids):
            raise _Unclear(f"the number of results is {len(responses)}, the number of deliveries {len(ids)}")
        return tuple(responses)
    by_id = {str(each["id"]).lower(): its for each, its in zip(results, responses, strict=True)}
    if len(by_id) < len(results):
        raise _Unclear("a delivery has two results")
    if by_id.keys() - {each.lower() for each in ids}:
        raise _Unclear("a result has an id that no delivery of this request has")
    missing = _refuse(response, content, "NotAcknowledged", "the results do not include this delivery")
    return tuple(by_id.get(each.lower(), missing) for each in ids)


def _item_response(response: Response, content: ResponseContent, result: dict[str, Any]) -> Response:
    status, error, wait = result.get("status"), result.get("error"), result.get("retry_after")
    if type(status) is not int or not 200 <= status <= 599:
        raise _Unclear("each result must have a status, a whole number from 200 to 599")
    return response._replace(
        accepted=status < 300,
        code=status,
        error=_SEE_RESPONSE if isinstance(error, str) else None,
        retry_after=str(wait) if type(wait) in (int, str) else content.retry_after,
        response_head=json.dumps(result, ensure_ascii=False).encode(errors="backslashreplace"),
    )


def _refuse(response: Response, content: ResponseContent, error_class: str, error: str) -> Response:
    return response._replace(
        accepted=False, code=None, error_class=error_class, error=error, retry_after=content.retry_after
    )


def _reject_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _reject_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a member occurs twice, and readers differ on which one counts")
    return found
