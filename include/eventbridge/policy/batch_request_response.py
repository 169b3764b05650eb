"""Interprets the response to a batch request for each of its deliveries. Pure.

A malformed response is ignored and never guessed at: a delivery that was accepted and is sent again carries its id,
but one that is wrongly counted as delivered is lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, NoReturn

from eventbridge.model.outcome import Response

#: The members of a response's body with the result of each delivery. No other body of a 2xx matters.
RESULTS: Final = "delivery_results"
INDEX: Final = "acknowledge_index"

#: Statuses that one delivery, or the size, may cause: a batch request that gets one is sent again in halves.
DIVISIBLE: Final = frozenset({400, 413, 422, 431})

_JSON_TYPE = re.compile(r"\s*[^/;\s]+/(?:[^;\s]*\+)?json\s*(?:;.*)?", re.IGNORECASE | re.DOTALL)
#: The error of an item in place of the target's text, which may quote the event: readers without the scope for
#: payloads see errors, but no recorded responses.
_SAYS_WHY = "the recorded response has the target's error text"


class ResponseContent(NamedTuple):
    """The content of a 2xx beside its status: the complete body, and two headers as received."""

    body: bytes
    content_type: str = ""
    retry_after: str | None = None


class Reading(NamedTuple):
    """The response to each delivery of a batch request, in order.

    None: the target has not processed the delivery, so it is sent again as if for the first time; `most` limits the
    size of its next batch request, None: no limit.
    """

    responses: tuple[Response | None, ...]
    most: int | None = None


class _Unclear(Exception):
    """The body has no known form; the message says why."""


def read_response(response: Response, said: ResponseContent, ids: Sequence[str]) -> Reading:
    """Return the meaning of a response for the deliveries of a batch request, with `ids` in their order.

    2xx: it applies to all, unless its body has results or an acknowledge index. Any other response applies to each of
    them; but with a status that one of several may cause, all of them are sent again in halves.
    """
    count = len(ids)
    if not response.accepted:
        if count > 1 and response.code in DIVISIBLE and not response.abort:
            return Reading((None,) * count, most=(count + 1) // 2)
        return Reading((response,) * count)
    try:
        told = _told(said, response.code)
        if told is None:
            return Reading((response,) * count)
        if RESULTS in told and INDEX in told:
            raise _Unclear(f"it has both {RESULTS} and {INDEX}")
        if RESULTS in told:
            return Reading(_by_results(response, said, told[RESULTS], ids))
        return Reading(_by_index(response, said, told[INDEX], count))
    except _Unclear as problem:
        why = f"the response (status {response.code}) cannot be read: {problem}"
        return Reading((_refused(response, said, "UnclearResults", why),) * count)


def _told(said: ResponseContent, code: int | None) -> dict[str, Any] | None:
    """Return the body if it has results or an index; None: only the status counts. Raises _Unclear."""
    declared = _JSON_TYPE.fullmatch(said.content_type) is not None
    named = RESULTS.encode() in said.body or INDEX.encode() in said.body  # whatever content type it declares
    value = None
    if said.body.strip() and (declared or named or code == 207):
        try:
            value = json.loads(said.body.decode(), parse_constant=_no_number, object_pairs_hook=_no_twins)
        except (ValueError, RecursionError):
            raise _Unclear("it should be JSON, and is none, or breaks off") from None
    if isinstance(value, dict) and (RESULTS in value or INDEX in value):
        return value
    if code == 207:
        raise _Unclear(f"207 promises results, and it has neither {RESULTS} nor {INDEX}")
    return None


def _by_index(response: Response, said: ResponseContent, index: Any, count: int) -> tuple[Response | None, ...]:
    if type(index) is not int or not 0 <= index <= count:
        raise _Unclear(f"{INDEX} is a whole number from 0 to {count}, the number of deliveries")
    if index == count:
        return (response,) * count
    refused = _refused(response, said, "NotAcknowledged", f"the target acknowledged {index} of {count}")
    # Deliveries after the first that was not accepted did not fail; a target that asks for a pause gets it for all.
    behind = None if said.retry_after is None else refused
    return ((response,) * index) + (refused,) + (behind,) * (count - index - 1)


def _by_results(response: Response, said: ResponseContent, results: Any, ids: Sequence[str]) -> tuple[Response, ...]:
    if not isinstance(results, list) or not all(isinstance(each, dict) for each in results):
        raise _Unclear(f"{RESULTS} is a list of objects, one for each delivery")
    named = sum("id" in each for each in results)
    if named not in (0, len(results)):
        raise _Unclear(f"{named} of {len(results)} results have an id: all or none must have one")
    responses = [_of_result(response, said, each) for each in results]
    if not named:
        if len(responses) != len(ids):
            raise _Unclear(f"it has {len(responses)} results for {len(ids)} deliveries")
        return tuple(responses)
    by_id = {str(each["id"]).lower(): its for each, its in zip(results, responses, strict=True)}
    if len(by_id) < len(results):
        raise _Unclear("a delivery has two results")
    if by_id.keys() - {each.lower() for each in ids}:
        raise _Unclear("a result has an id of no delivery in this request")
    missing = _refused(response, said, "NotAcknowledged", "the results do not name it")
    return tuple(by_id.get(each.lower(), missing) for each in ids)


def _of_result(response: Response, said: ResponseContent, result: dict[str, Any]) -> Response:
    status, error, wait = result.get("status"), result.get("error"), result.get("retry_after")
    if type(status) is not int or not 200 <= status <= 599:
        raise _Unclear("each result has a status, a whole number from 200 to 599")
    return response._replace(
        accepted=status < 300,
        code=status,
        error=_SAYS_WHY if isinstance(error, str) else None,
        retry_after=str(wait) if type(wait) in (int, str) else said.retry_after,
        response_head=json.dumps(result, ensure_ascii=False).encode(errors="backslashreplace"),
    )


def _refused(response: Response, said: ResponseContent, error_class: str, error: str) -> Response:
    return response._replace(
        accepted=False, code=None, error_class=error_class, error=error, retry_after=said.retry_after
    )


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a member stands there twice, and readers differ on which counts")
    return found
