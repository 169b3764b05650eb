"""Publishes events to a bus for the command line, the form of a DAG, and tasks that users write.

It also determines the load of a bus, which limits what the HTTP API accepts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any

from eventbridge.control.submissions import (
    PublishResult,
    Submission,
    errors_of,
    read_submission,
    read_submissions,
    results_of,
)
from eventbridge.errors import BusError, UserError, error_lines
from eventbridge.model.partition import Partition
from eventbridge.policy.capacity import BusLoad
from eventbridge.progress import Progress, unreported
from eventbridge.rules import Bus, RuleSet
from eventbridge.rules.find import find_bus, find_topic
from eventbridge.runtime.quotas import storage_refusal, store_quota
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.protocol import DiskBackedBus, LogSource

#: The maximum number of events that are published in one transaction of a bus.
PUBLISHED_AT_ONCE = 1_000
_MAX_LISTED = 20


@dataclass(frozen=True)
class Published:
    """The result of publishing. All published events are durable.

    `partitions` has the number of events that each partition got, and their first and last offset. `malformed` has the
    errors of the published events that are not CloudEvents and will become dead letters. `unregistered` has the runners
    that will not get the events, because they have never run and the bus has `start_at: latest`. `has_rule` is False if
    no rule uses the bus, so that no runner takes its events.
    """

    bus: str
    topic: str
    count: int
    partitions: Mapping[Partition, tuple[int, int, int]]
    malformed: tuple[str, ...]
    unregistered: tuple[str, ...]
    has_rule: bool


def publish_lines(
    runtime: Runtime,
    bus: str,
    topic: str | None,
    lines: Iterable[tuple[int, bytes]],
    progress: Progress = unreported,
) -> Published:
    """Publish lines unchanged, even those that are not CloudEvents. Each line is a pair of its number and its body.

    If `topic` is None, the events go to the bus's first topic. Raises NotFoundError for an unknown bus or topic. If the
    bus fails, raises BusError with the number of the first line that was not published. `progress` gets the number of
    durable events.
    """
    limit = runtime.settings.event_max_size
    read = ((number, read_submission(line, max_bytes=limit)) for number, line in lines)
    count = 0

    def report(added: Sequence[tuple[Partition, int]]) -> None:
        nonlocal count
        count += len(added)
        progress(count, None)

    return _publish(runtime, bus, topic, read, report)


def publish_events(
    runtime: Runtime, bus: str, topic: str | None, events: Sequence[bytes], *, name: str = ""
) -> tuple[Published, list[PublishResult]]:
    """Publish events if every one of them is a CloudEvent. Return the result of the call and the result of each event.

    An event without an `id` gets one. It is always the same for the same `name` and position, so that a retry of a task
    publishes the same event, not a new one. If events have errors, raises UserError before anything is published. The
    message has at most 200 errors, each with the position of its event.
    """
    if not events:
        raise UserError("there is no event to publish: give at least one CloudEvent, as a JSON object")
    submissions = read_submissions(events, max_bytes=runtime.settings.event_max_size, name=name)
    errors = [
        f"event {number}: {error}"
        for number, submission in enumerate(submissions, 1)
        if submission.error
        for error in errors_of(submission)
    ]
    if errors:
        head = "nothing was published; correct these errors and publish all events again:"
        raise UserError("\n".join([head, *error_lines(errors)]))
    positions: list[tuple[Partition, int]] = []
    published = _publish(runtime, bus, topic, enumerate(submissions, 1), positions.extend)
    return published, results_of(submissions, positions)


def _publish(
    runtime: Runtime,
    bus: str,
    topic: str | None,
    submissions: Iterable[tuple[int, Submission]],
    add_positions: Callable[[Sequence[tuple[Partition, int]]], object],
) -> Published:
    """Publish pairs of line number and submission, a thousand per transaction, and report their positions.

    `add_positions` is called after each transaction.
    """
    rules = runtime.rule_set()
    found = find_bus(rules, bus)
    topic = find_topic(found, topic)
    unregistered = _unregistered(runtime, rules, found)
    spans: dict[Partition, tuple[int, int, int]] = {}
    count = 0
    malformed: list[str] = []
    with closing(runtime.open_publisher(found)) as publisher:
        rest = iter(submissions)
        while batch := list(islice(rest, PUBLISHED_AT_ONCE)):
            malformed += [f"line {number}: {submission.error}" for number, submission in batch if submission.error]
            try:
                added = publisher.publish([submission.record for _, submission in batch], topic=topic)
            except BusError as error:
                raise BusError(
                    f"{count:,} events were published, but none from line {batch[0][0]} on: {error}"
                ) from error
            for partition, offset in added:
                before, first, last = spans.get(partition, (0, offset, offset))
                spans[partition] = (before + 1, min(first, offset), max(last, offset))
            add_positions(added)
            count += len(batch)
    has_rule = found.name in rules.runners().values()
    partitions = dict(sorted(spans.items()))
    return Published(found.name, topic, count, partitions, tuple(malformed), tuple(unregistered), has_rule)


def bodies_of(events: str | Sequence[Mapping[str, Any] | str | bytes]) -> list[bytes]:
    """Return the bodies of the events that a form or a task gives.

    `events` is a list of objects or strings, or one string with JSON lines or a JSON array. Blank lines are skipped.
    The events themselves are not checked. Raises UserError for an invalid array, for an object that JSON cannot
    represent, and for half of a surrogate pair.
    """
    if not isinstance(events, str):
        return [_body(number, each) for number, each in enumerate(events, 1)]
    if not events.lstrip().startswith("["):
        # Not splitlines, because a JSON string may contain U+2028 and similar characters unescaped.
        lines = [line.strip() for line in events.split("\n")]
        return [_encode(number, line) for number, line in enumerate((each for each in lines if each), 1)]
    try:
        # Each element is cut out of the string and not serialized again, so that numbers keep their digits.
        return [_encode(number, element) for number, element in enumerate(_elements(events), 1)]
    except RecursionError:
        raise UserError("the array is nested too deeply to be read. Give one event per line") from None
    except json.JSONDecodeError as error:
        raise UserError(
            f"line {error.lineno}, column {error.colno}: {error.msg}. Give one event per line, or one JSON array"
        ) from None


def _elements(text: str) -> Iterable[str]:
    decoder = json.JSONDecoder()
    position = _past_space(text, text.index("[") + 1)
    while text[position : position + 1] != "]":
        _, end = decoder.raw_decode(text, position)
        yield text[position:end]
        position = _past_space(text, end)
        if text[position : position + 1] == ",":
            position = _past_space(text, position + 1)
        elif text[position : position + 1] != "]":
            raise json.JSONDecodeError("expected , or ]", text, position)
    if text[position + 1 :].strip():
        raise json.JSONDecodeError("unexpected text after the array", text, position + 1)


def _past_space(text: str, position: int) -> int:
    while text[position : position + 1] in (" ", "\t", "\r", "\n"):
        position += 1
    return position


def _body(number: int, event: Mapping[str, Any] | str | bytes) -> bytes:
    if isinstance(event, bytes):
        return event
    if isinstance(event, str):
        return _encode(number, event)
    try:
        return json.dumps(event, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"event {number}: {error}. Write values that JSON lacks, such as times, as strings") from None


def _encode(number: int, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"event {number}: half of a surrogate pair at position {error.start} is not text") from None


def _unregistered(runtime: Runtime, rules: RuleSet, bus: Bus) -> list[str]:
    """Return those runners of a bus that would start at `latest`, because they are not registered yet."""
    if bus.source.start_at != "latest":
        return []
    runners = [runner for runner, name in sorted(rules.runners().items()) if name == bus.name]
    return [runner for runner in runners if not runtime.ledger.offsets.committed(runner)]


def report_published(published: Published, results: Sequence[PublishResult], log_line: Callable[[str], object]) -> None:
    """Log the number, partitions, offsets and ids of published events, and the runners that will not get them."""
    ids = [each.event_id for each in results]
    log_line(f"{published.count:,} published to {published.bus}/{published.topic}")
    for partition, (count, first, last) in published.partitions.items():
        log_line(f"partition {partition.partition_id}: {count:,}, offsets {first} to {last}")
    more = f" and {len(ids) - _MAX_LISTED:,} more" if len(ids) > _MAX_LISTED else ""
    log_line(f"ids: {', '.join(ids[:_MAX_LISTED])}{more}")
    for runner in published.unregistered:
        log_line(
            f"the runner {runner} will not get these events, because it has never run and the bus {published.bus} has "
            "start_at: latest. Run it once before you publish, or set start_at: earliest"
        )


class BusWatch:
    """Keeps a bus open to determine its load. Only one thread at a time may use it."""

    def __init__(self, runtime: Runtime, bus: Bus) -> None:
        self._runtime = runtime
        self._bus = bus
        self._source: LogSource | None = None

    def load(self, runners: list[str], rules: RuleSet) -> BusLoad:
        """Return the load of the bus with these runners, and with the quotas that the current rules give its owner.

        Raises BusError or LedgerError if the load cannot be determined.
        """
        full = storage_refusal(self._runtime, rules, self._bus)
        try:
            source = self._source = self._source or self._runtime.open_source(self._bus)
            free = source.free_bytes() if isinstance(source, DiskBackedBus) else None
            return BusLoad(free, self._backlog(source, runners), store_quota(self._runtime), full)
        except UserError:  # a queue source does not report how many messages are waiting
            return BusLoad(None, None, store_quota(self._runtime), full)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the bus."""
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def _backlog(self, source: LogSource, runners: list[str]) -> int | None:
        """Return the lag of the runner that is furthest behind, or None if the bus has no limit or no runner."""
        if self._bus.max_backlog is None or not runners:
            return None
        ends = source.ends()
        return max(sum(self._lag(source, ends, runner)) for runner in runners)

    def _lag(self, source: LogSource, ends: Mapping[Partition, int], runner: str) -> list[int]:
        committed = {row.partition: row.offset for row in self._runtime.ledger.offsets.find(runner)}
        if not committed and self._bus.source.start_at == "latest":
            return [0]  # the runner has never run, and will start at the end
        return [
            max(0, end - committed[partition]) if partition in committed else max(0, end - source.earliest(partition))
            for partition, end in ends.items()
        ]
