"""Applies the contract of publishing, which is the same for the command line, Airflow, Python and HTTP.

An event must be a strict CloudEvent in JSON. If it has no `id`, it gets one. Events with the same `partitionkey` or, if
they have none, with the same `subject` go to one partition, in order. Published events are durable, and each submission
has a result: its position on the bus, or its error.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from eventbridge.errors import EventError
from eventbridge.event.cloudevent import errors_in, parse_event, recognised
from eventbridge.event.json_document import parse_document
from eventbridge.event.json_text import canonical_text
from eventbridge.model.partition import Partition

#: The maximum number of errors that are reported for one event. Each of its members may have one.
_MAX_OF_EVENT = 20


@dataclass(frozen=True, slots=True)
class Submission:
    """One event of a call. `error` is why it is invalid, or "" if it is valid.

    `body` is what is published. `event_id` and `source` are "" if they could not be read. `key` is None if the event
    has no key. `too_large` is True if the error is that the event has too many bytes.
    """

    body: bytes
    event_id: str = ""
    source: str = ""
    key: str | None = None
    error: str = ""
    too_large: bool = False

    @property
    def record(self) -> tuple[bytes, str | None]:
        """The body and the key, in the form that a bus takes."""
        return self.body, self.key


@dataclass(frozen=True, slots=True)
class PublishResult:
    """The result of one event of a call: its position on the bus, or the error that prevented its publication."""

    event_id: str
    partition: Partition | None = None
    offset: int | None = None
    error: str = ""
    too_large: bool = field(default=False, repr=False)  # the event is too large for the bus or for the topic


def read_submission(body: bytes, *, max_bytes: int) -> Submission:
    """Return an event with its id, source and key, or with its error."""
    document: dict[str, Any] | None = recognised(body, max_bytes=max_bytes)
    if document is None:
        try:
            document = parse_event(body, max_bytes=max_bytes).document
        except EventError as error:
            return Submission(body, error=str(error), too_large=len(body) > max_bytes)
    # both readers ensure that these are strings
    return Submission(body, str(document["id"]), str(document["source"]), _key_of(document))


def errors_of(submission: Submission) -> list[str]:
    """Return the errors of a submission's event, at most 20 of them, followed by the number of the others."""
    if submission.too_large:
        return [submission.error]
    try:
        found = [str(error) for error in errors_in(parse_document(submission.body))]
    except EventError:
        found = []
    more = len(found) - _MAX_OF_EVENT
    listed = found[:_MAX_OF_EVENT] or [submission.error]
    return [*listed, f"and {more:,} more"] if more > 0 else listed


def _key_of(document: dict[str, Any]) -> str | None:
    """Return the key that determines an event's partition. 7 and "7" are equal, because binary mode has only text."""
    key = document.get("partitionkey")
    if key is None:
        key = document.get("subject")
    return key if key is None or isinstance(key, str) else canonical_text(key)


def read_submissions(bodies: Sequence[bytes], *, max_bytes: int, name: str = "") -> list[Submission]:
    """Return the events of one call in their order, each with an id or an error.

    An event without an `id` gets one. It is always the same for the same `name` and position, so that a retry of a call
    publishes the same event, not a new one. If an event occurs twice in a call, its second occurrence has an error.
    """
    submissions: list[Submission] = []
    first_numbers: dict[tuple[str, str], int] = {}
    for number, body in enumerate(bodies, 1):
        submission = read_submission(body, max_bytes=max_bytes)
        if submission.error and not submission.too_large:  # an event that is too large is not parsed to find its id
            with_id = _add_id(number, body, name)
            submission = submission if with_id is body else read_submission(with_id, max_bytes=max_bytes)
        if not submission.error:
            first = first_numbers.setdefault((submission.source, submission.event_id), number)
            if first != number:
                twice = (
                    f"source {submission.source!r} has the id {submission.event_id!r} twice, here and in event {first}"
                )
                submission = replace(submission, error=twice)
        submissions.append(submission)
    return submissions


def results_of(
    submissions: Iterable[Submission], published: Iterable[tuple[Partition, int] | int]
) -> list[PublishResult]:
    """Return the results of submissions, in their order.

    `published` has one value for each submission without an error: the event's position or, if the event was too large
    for its topic, the maximum number of bytes that the topic takes for event and key.
    """
    rest = iter(published)
    return [
        PublishResult(submission.event_id, error=submission.error, too_large=submission.too_large)
        if submission.error
        else _result(submission, next(rest))
        for submission in submissions
    ]


def _result(submission: Submission, published: tuple[Partition, int] | int) -> PublishResult:
    if not isinstance(published, int):
        return PublishResult(submission.event_id, *published)
    size = len(submission.body)
    error = (
        f"the event has {size:,} bytes, and the topic takes at most {published:,}, including the key. "
        "Raise max.message.bytes of the topic"
    )
    return PublishResult(submission.event_id, error=error, too_large=True)


def _add_id(number: int, body: bytes, name: str) -> bytes:
    """Return an event with an id added. If it has an id or no members, or is not a JSON object, return it unchanged."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return body  # the submission already has this error
    if not isinstance(document, dict) or not document or "id" in document:
        return body
    given = uuid.uuid5(uuid.NAMESPACE_URL, f"{name} {number}") if name else uuid.uuid4()
    return body.replace(b"{", f'{{"id": "{given}", '.encode(), 1)
