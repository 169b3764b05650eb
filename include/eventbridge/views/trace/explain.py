"""Explains why an event was, or was not, delivered, from the ledger, the store and the buses."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from eventbridge.errors import EventBridgeError, NotFoundError, PartlySearched, StoreError, UserError
from eventbridge.event.json_document import Document, parse_document
from eventbridge.event.json_text import bytes_as_text
from eventbridge.matching.consistency import Leaves, flatten
from eventbridge.matching.pattern.nodes import Pattern
from eventbridge.matching.pattern.parse import parse_pattern
from eventbridge.matching.reference import CheckedCondition, check_each, matches_leaves
from eventbridge.model import rowset
from eventbridge.model.why import (
    BeforeStart,
    EventName,
    EventPosition,
    EventResult,
    Landing,
    RuleChange,
    RuleResult,
    SearchExtent,
    SeenCondition,
    Step,
    Why,
)
from eventbridge.rules import Rule, RuleSet
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.time_range import time_range
from eventbridge.runtime.visibility import Visibility, visibility_of
from eventbridge.similar_names import suggest
from eventbridge.store.parquet import read_rows
from eventbridge.views.trace.event_trace import EventTrace
from eventbridge.views.trace.search import (
    ArchiveSearch,
    DeliverySearch,
    FoundMessage,
    IdQuery,
    delivery_bytes,
    delivery_note,
    find_delivery,
    find_on_buses,
    messages_before_start,
)

_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER = datetime.max.replace(tzinfo=UTC)

#: The maximum number of parsed patterns to cache, by the rule's name and version. They are cached because parsing takes
#: longer than evaluation.
_MAX_PATTERNS: Final = 50_000
_patterns: dict[tuple[str, str], Pattern] = {}


class _RuleChoice(NamedTuple):
    """The current rules, if they can be read, and which of them to evaluate; see `why`."""

    current: RuleSet | None
    max_unmatched: int | None
    rule: str | None


def why(
    runtime: Runtime,
    event_id: str,
    *,
    bus: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    max_unmatched: int | None = None,
    rule: str | None = None,
) -> Why:
    """Return the history of every message with an id, on one bus or all, in batches planned in a time range.

    `event_id` is the id of an event. If no event has it, it is taken for the id of a delivery, which targets receive as
    `webhook-id`. `max_unmatched` is the maximum number of rules in the result that do not match. If `rule` is set, the
    result has this rule and its deliveries only. Raises NotFoundError for an unknown bus and, with the extent of the
    search, if no message is found. Raises PartlySearched instead if a file could not be read. Raises UserError for an
    empty id.
    """
    if not event_id:
        raise UserError("the id is empty, and no event has an empty id. Write the `id` of the event")
    current = _current_rules(runtime)
    _check_bus(runtime, bus, current)
    search = ArchiveSearch(
        runtime, IdQuery(event_id, since or _FIRST, until or runtime.clock() + timedelta(days=1), bus or "")
    )
    buses = [] if current is None else [each for each in current.buses.values() if bus in (None, each.name)]
    visibility = visibility_of(runtime)
    # Search the buses before the archive: a message that is archived in between is then found twice rather than missed.
    uncommitted = list(find_on_buses(runtime, event_id, buses, search.notes))
    messages = {
        position: found for position, found in _group_by_position(search.run()).items() if visibility.bus(position.bus)
    }
    positions = [
        position
        for position in uncommitted
        if position not in messages and visibility.bus(position.bus) and position.bus not in visibility.shared
    ]
    before: list[BeforeStart] = []
    if not messages and not positions:
        found_before = messages_before_start(runtime, event_id, buses, search.notes)
        before = [
            each
            for each in found_before
            if visibility.bus(each.position.bus) and each.position.bus not in visibility.shared
        ]
    if not messages and not positions and not before:
        delivery = delivery_bytes(event_id)
        if delivery is None:
            message = _not_matched(event_id) if runtime.only_matched else _not_found(event_id, bus, search)
            raise (PartlySearched if search.unreadable else NotFoundError)(message)
        found = find_delivery(runtime, delivery, search.wanted.since, search.wanted.until)
        search.unreadable += found.unreadable
        if found.event_id is None or not visibility.rule(found.rule or ""):
            message = (
                _not_matched(event_id)
                if runtime.only_matched
                else _not_found(event_id, bus, search) + _not_delivered(found)
            )
            raise (PartlySearched if search.unreadable else NotFoundError)(message)
        result = why(runtime, found.event_id, bus=bus, since=since, until=until, max_unmatched=max_unmatched, rule=rule)
        return replace(result, notes=(delivery_note(delivery, found), *result.notes))
    asked = _RuleChoice(current, max_unmatched, rule)
    results = [_result(runtime, position, found, asked, search.unreadable) for position, found in messages.items()]
    results = [_only_visible(each, visibility) for each in results]
    if runtime.only_matched:
        found_here = _only_matched(runtime, event_id, results, rule)
        if not found_here and not positions and not before:
            raise (PartlySearched if search.unreadable else NotFoundError)(_not_matched(event_id))
        # no notes and no extent of the search, because both count the events of others
        extent, unreadable = SearchExtent(0, 0, 0, None, None), tuple(dict.fromkeys(search.unreadable))
        return Why(event_id, found_here, tuple(positions), tuple(before), extent, (), unreadable)
    if current is not None:
        unused = {position.bus for position in positions} - set(current.runners().values())
        search.notes += [f"no rule uses the bus {name}, so no runner takes its events" for name in sorted(unused)]
    return Why(
        event_id=event_id,
        events=tuple(results),
        not_landed=tuple(positions),
        before_start=tuple(before),
        searched=search.extent(),
        notes=tuple(dict.fromkeys(search.notes)),
        unreadable=tuple(dict.fromkeys(search.unreadable)),
    )


def why_between(runtime: Runtime, event_id: str, bus: str | None, since: str | None, until: str | None) -> Why:
    """Return the same as `why`, for times written as `time_range` reads them; None is no limit.

    Raises UserError for an invalid time, and the errors of `why`.
    """
    if since is None and until is None:
        return why(runtime, event_id, bus=bus)
    first, last = time_range(runtime.clock(), since or datetime(1970, 1, 1, tzinfo=UTC).isoformat(), until)
    return why(runtime, event_id, bus=bus, since=first, until=last if until is not None else None)


def body_of_event(runtime: Runtime, event_id: str) -> str | None:
    """Return the body of the message with an id that was landed first; None if it cannot be read.

    `event_id` may also be the id of a delivery. If the archive has a message with the id, no rule is evaluated, because
    there may be thousands. Raises the same errors as `why` if no message is found.
    """
    landed = _landed_bodies(runtime, event_id)
    return landed[0] if landed else first_body(runtime, why(runtime, event_id, max_unmatched=0))


def first_body(runtime: Runtime, found: Why) -> str | None:
    """Return the body of the first found message whose archive can be read; None if none can be read."""
    return next((body for each in found.events if (body := archived_body(runtime, each)) is not None), None)


def archived_body(runtime: Runtime, event: EventResult) -> str | None:
    """Return the body of a found message from the archive; None if no archive file with the message can be read."""
    return body_or_error(runtime, event)[0]


def body_or_error(runtime: Runtime, event: EventResult) -> tuple[str | None, str | None]:
    """Return the body of a found message from the archive, or the error of the last file; both None after retention."""
    problem = None
    for landing in event.landings:
        if landing.archived:
            try:
                table = read_rows(runtime.store, landing.file, rowset.encode([landing.row]), ["body"])
            except StoreError as error:  # the next runner's batch may have the message too
                problem = str(error)
                continue
            return bytes_as_text(table["body"][0].as_py()), None
    return None, problem


def _landed_bodies(runtime: Runtime, event_id: str) -> list[str]:
    """Return the bodies of the archived messages with an id, in the order in which `why` returns the messages."""
    search = ArchiveSearch(runtime, IdQuery(event_id, _FIRST, runtime.clock() + timedelta(days=1), ""))
    visibility = visibility_of(runtime)
    if visibility.shared:  # only `why` knows which events the caller's rules matched
        return []
    messages = _group_by_position(search.run())
    return [
        bytes_as_text(found[0].record["body"]) for position, found in messages.items() if visibility.bus(position.bus)
    ]


def refuse_unknown_bus(runtime: Runtime, bus: str) -> None:
    """Raise NotFoundError, with the most similar name, for a bus that no rule file defines and no runner has read."""
    _check_bus(runtime, bus, _current_rules(runtime))


def _only_visible(result: EventResult, visibility: Visibility) -> EventResult:
    """Return a result without the rules, deliveries and steps that the caller may not see."""
    return replace(
        result,
        rules=tuple(each for each in result.rules if visibility.rule(each.rule)),
        deliveries=tuple(each for each in result.deliveries if visibility.rule(each.rule)),
        steps=tuple(each for each in result.steps if each.rule is None or visibility.rule(each.rule)),
    )


def _only_matched(
    runtime: Runtime, event_id: str, results: Sequence[EventResult], rule: str | None
) -> tuple[EventResult, ...]:
    """Return the messages that a visible rule matched, or whose bus belongs to an owner of the caller.

    They are returned without the batches of runners that deliver only for rules of others.
    """
    shared, runners = visibility_of(runtime).shared, runtime.rule_set().runners()
    if rule is not None and results:  # the other rules decide too whether the event may be seen
        seen = {each.position for each in why(runtime, event_id, max_unmatched=0).events}
    else:
        seen = {each.position for each in results if each.position.bus not in shared or _is_matched(each)}
    return tuple(_only_of_runners(each, runners) for each in results if each.position in seen)


def _is_matched(event: EventResult) -> bool:
    """Return whether a rule of a result has a delivery of the event, or has matched it and will have one."""
    return bool(event.deliveries) or any(
        each.matched and each.enabled and each.change != "added" and (each.where is None or each.where_met)
        for each in event.rules
    )


def _only_of_runners(event: EventResult, runners: Collection[str]) -> EventResult:
    others = {each.batch_id for each in event.landings if each.runner not in runners}
    return replace(
        event,
        landings=tuple(each for each in event.landings if each.batch_id not in others),
        steps=tuple(each for each in event.steps if each.rule is not None or each.batch_id not in others),
    )


def _not_matched(event_id: str) -> str:
    """Return the same text whether only others have the event, or nobody has."""
    return f"no event or delivery of your rules has the id {event_id!r}"


def _current_rules(runtime: Runtime) -> RuleSet | None:
    try:
        return runtime.rule_set()
    except EventBridgeError:  # past batches can be explained even while the rule files have errors
        return None


def _check_bus(runtime: Runtime, bus: str | None, current: RuleSet | None) -> None:
    read = {each.bus for each in runtime.ledger.offsets.find()} | set(current.buses if current is not None else ())
    known = set(filter(visibility_of(runtime).bus, read))
    if bus is not None and bus not in known:
        raise NotFoundError(f"there is no bus {bus!r}. {suggest('Buses', bus, known)}")


def _group_by_position(found: Iterable[FoundMessage]) -> dict[EventPosition, list[FoundMessage]]:
    """Return the messages by position; a position has several messages if several runners landed it."""
    messages: dict[EventPosition, list[FoundMessage]] = {}
    for each in found:
        position = _position(each)
        messages.setdefault(position, []).append(each)
    return messages


def _position(found: FoundMessage) -> EventPosition:
    record = found.record
    return EventPosition(found.batch.bus, record["topic"], record["broker"], record["partition_id"], record["offset"])


def _result(
    runtime: Runtime, position: EventPosition, found: Sequence[FoundMessage], asked: _RuleChoice, unreadable: list[str]
) -> EventResult:
    record = next((each.record for each in found if each.record["status"] == "valid"), found[0].record)
    landings = tuple(map(_landing, found))
    valid = record["status"] == "valid"
    source, event_id = (record["source"], record["event_id"]) if valid else ("", "")
    event_trace = EventTrace(runtime, EventName(position, source, event_id, asked.rule))
    event_trace.follow(landings)
    unreadable += event_trace.unreadable
    steps = [Step(record["published_at"], "published", ""), *(_landed(each) for each in found), *event_trace.steps]
    routed = {each.rule for each in event_trace.deliveries.values()} | event_trace.deferred
    rules = _rules(runtime, position.bus, found, asked, unreadable) if valid else []
    return EventResult(
        position=position,
        status=record["status"],
        reason=record["reason"],
        source=record["source"],
        type=record["type"],
        published_at=record["published_at"],
        duplicate_of=_original_position(runtime, found[0]) if record["status"] == "duplicate" else None,
        landings=landings,
        rules=tuple(_with_where(each, routed, landings) for each in rules),
        deliveries=tuple(
            sorted(
                event_trace.deliveries.values(),
                key=lambda each: (each.rule, each.target, each.replay_id, each.batch_id),
            )
        ),
        steps=tuple(sorted(steps, key=lambda each: each.at or _NEVER)),
    )


def _landing(found: FoundMessage) -> Landing:
    batch = found.batch
    return Landing(
        batch_id=batch.batch_id,
        runner=batch.runner,
        state=batch.state,
        rule_set=batch.rule_set,
        planned_at=batch.planned_at,
        file=found.file,
        row=found.row,
        arrived_at=found.record["arrived_at"],
    )


def _landed(found: FoundMessage) -> Step:
    status = found.record["status"]
    return Step(
        at=found.record["arrived_at"],
        what="landed",
        batch_id=found.batch.batch_id,
        outcome=status,
        reason=found.record["reason"],
        detail=f"by runner {found.batch.runner}",
    )


def _rules(
    runtime: Runtime, bus: str, found: Sequence[FoundMessage], asked: _RuleChoice, unreadable: list[str]
) -> list[RuleResult]:
    """Return the results of the rules that the batches were planned with, and of rules that were added since."""
    then: dict[str, Rule] = {}
    for each in found:
        try:
            then |= _bus_rules(runtime.rules_of(each.batch), bus, asked.rule)
        except StoreError as error:
            unreadable.append(f"batch {each.batch.batch_id}: {error}")
    now = None if asked.current is None else _bus_rules(asked.current, bus, asked.rule)
    return _rule_results(then, now, parse_document(found[0].record["body"]), asked.max_unmatched)


def _bus_rules(rules: RuleSet, bus: str, only: str | None) -> Mapping[str, Rule]:
    names = rules.rules if only is None else {only} & rules.rules.keys()
    return {name: rule for name in names if (rule := rules.rules[name]).bus == bus}


def _with_where(result: RuleResult, routed: set[str], landings: Sequence[Landing]) -> RuleResult:
    """Return a result with Spark's decision on `where`, derived from whether the rule has a delivery of the event.

    As long as the rule has no delivery and its runner's batch is not committed, `where_met` stays None.
    """
    if result.where is None or not result.matched or not result.enabled or result.change == "added":
        return result
    if result.rule in routed:
        return replace(result, where_met=True)
    settled = any(each.runner == result.runner and each.state == "committed" for each in landings)
    return replace(result, where_met=False if settled else None)


def _original_position(runtime: Runtime, found: FoundMessage) -> str | None:
    """Return the position of the valid message, in the message's batch, that a message duplicates.

    Returns None if the valid message was in an earlier batch, or is no longer in the archive.
    """
    for each in ArchiveSearch(
        runtime, IdQuery(found.record["event_id"], found.batch.planned_at, _NEVER)
    ).batch_messages(found.batch):
        if each.record["status"] == "valid" and each.record["source"] == found.record["source"]:
            return str(_position(each))
    return None


def _not_delivered(found: DeliverySearch) -> str:
    since = "" if found.oldest is None else f" since {found.oldest:%Y-%m-%d %H:%M:%S} (UTC)"
    return f". No delivery{since} has this id as its webhook-id either"


def _not_found(event_id: str, bus: str | None, search: ArchiveSearch) -> str:
    searched = search.extent()
    where = "any bus" if bus is None else f"bus {bus!r}"
    if searched.oldest is None or searched.newest is None:
        return (
            f"no event {event_id!r} on {where}: no batch was planned in that time. "
            "`eventbridge status` shows whether the runners are working; use --from and --to to choose another time"
        )
    gone = (
        f" The archive of {searched.pruned:,} of them is past its retention and was removed: "
        "their events can no longer be found."
        if searched.pruned
        else ""
    )
    gaps = [*search.unreadable, *search.notes]
    unread = f" The search may be incomplete: {gaps[0].rstrip('.')}." if gaps else ""
    batches = f"{searched.batches:,} batch{'es' if searched.batches != 1 else ''}"
    return (
        f"no event {event_id!r} on {where}. Searched: the uncommitted messages on the buses, and {batches} planned "
        f"from {searched.oldest:%Y-%m-%d %H:%M:%S} to {searched.newest:%Y-%m-%d %H:%M:%S} (UTC).{gone}{unread} "
        "Ids are case-sensitive"
    )


def _rule_results(
    then: Mapping[str, Rule], current: Mapping[str, Rule] | None, document: Document, max_unmatched: int | None = None
) -> list[RuleResult]:
    """Return the results of the batch's rules for an event, then of rules added later; `current` is None if unknown.

    At most `max_unmatched` rules that matched neither then nor now are returned, in the order of their names.
    """
    leaves = flatten(document)
    asked: list[tuple[Rule, RuleChange]] = [(rule, _compared(rule, current)) for rule in then.values()]
    if current is not None:
        asked += [(rule, "added") for name, rule in current.items() if name not in then]
    found, unmatched = [], 0
    for rule, compared in sorted(asked, key=lambda each: (each[1] == "added", each[0].name)):
        pattern = _pattern_of(rule)
        matched = matches_leaves(pattern, leaves)
        changed = compared in ("changed", "added") and current is not None
        now = _matches(current[rule.name], leaves) if changed and current is not None else None
        if not matched and not now:
            unmatched += 1
            if max_unmatched is not None and unmatched > max_unmatched:
                continue
        conditions = tuple(_condition_result(each) for each in check_each(pattern, document))
        found.append(
            RuleResult(
                rule=rule.name,
                version=rule.version,
                runner=rule.runner,
                enabled=rule.enabled,
                matched=matched,
                conditions=conditions,
                where=rule.where,
                change=compared,
                current_version_matches=now,
            )
        )
    return sorted(found, key=lambda each: (each.change == "added", not each.matched, each.rule))


def _condition_result(checked: CheckedCondition) -> SeenCondition:
    finding = checked.finding
    return SeenCondition(checked.met, finding.path, finding.condition, finding.values, finding.message)


def _compared(rule: Rule, current: Mapping[str, Rule] | None) -> RuleChange:
    if current is None:
        return "unknown"
    now = current.get(rule.name)
    if now is None:
        return "removed"
    return "same" if (now.version, now.enabled) == (rule.version, rule.enabled) else "changed"


def _matches(rule: Rule, leaves: Leaves) -> bool:
    return rule.enabled and matches_leaves(_pattern_of(rule), leaves)


def _pattern_of(rule: Rule) -> Pattern:
    key = (rule.name, rule.version)  # the version is a hash of the rule's content
    found = _patterns.get(key)
    if found is None:
        if len(_patterns) >= _MAX_PATTERNS:
            _patterns.clear()
        found = _patterns[key] = parse_pattern(rule.pattern)
    return found
