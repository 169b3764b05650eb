"""Reads all rule files in a folder and its subfolders into one rule set, or raises one error that lists all errors in
them.

It is called by every `listen` task, by the DAG files at parse time, and by `eventbridge rules check`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from eventbridge.config.target_locations import TargetLocations
from eventbridge.errors import RuleError, RuleFileError
from eventbridge.matching.pattern import ExpressionSizes
from eventbridge.rules.bounds import BoundedErrors
from eventbridge.rules.cache import RuleCache, keep_joined, last_joined, zones_of
from eventbridge.rules.fields import NAME, NAME_REMEDY, Fields
from eventbridge.rules.files import NO_RULE_FILE, content_of_file, files_below, is_rule_file
from eventbridge.rules.model import Bus, Owner, Rule, Runner, StreamingTimes, Target, webhook_conflicts
from eventbridge.rules.node import Location, Node
from eventbridge.rules.operations_bus import OPERATIONS_BUS
from eventbridge.rules.read_rule import read_bus, read_rule, tests_of
from eventbridge.rules.read_target import read_pending_max, todays_time_zones
from eventbridge.rules.rule_set import RuleSet
from eventbridge.rules.tests import RuleTest
from eventbridge.rules.types import TARGET_TYPES
from eventbridge.rules.vocabulary import MODES
from eventbridge.rules.yaml_tree import read_yaml
from eventbridge.similar_names import nearest

Thing = TypeVar("Thing", Bus, Rule, Runner, Owner)
Trial = Callable[[Rule, RuleTest], Iterable[RuleError]]


def load_rules(
    folder: Path,
    *,
    checked: bool = False,
    target_locations: TargetLocations | None = None,
    cache: Path | None = None,
    tried_by: Trial | None = None,
    instead: tuple[Path, bytes] | None = None,
    relative: bool = False,
) -> RuleSet:
    """Return the buses and rules of every `.yaml` and `.yml` file in `folder`, except in hidden files and folders.

    Raises RuleFileError with all errors, in the order of files and lines. A folder without rule files is an error,
    because every rule would otherwise count as removed. Subfolders are read too. If `checked`, a configured runner
    without rules is an error. `target_locations` is where targets may write; if it is given, an obstacle for a target
    on this machine is an error. Both are only for checks, because an obstacle during delivery fails one target, which
    is retried, and must not stop every rule. `tried_by` runs one test of a rule and returns its errors; it is called
    only if there are no other errors. `instead` is the path of a file in the folder, which need not exist, and the
    content to read in its place, to which the limits of `rules.bounds` apply. If `relative`, errors show paths relative
    to the folder. `cache` is the folder of the rule cache, which makes loading faster and does not change the result.
    """
    as_they_are = (
        cache is not None and not checked and target_locations is None and tried_by is None and instead is None
    )
    known = _reuse_cached(folder, RuleCache(cache)) if cache is not None and as_they_are else None
    if known is not None:
        return known
    errors: list[RuleError] = [] if instead is None else BoundedErrors()
    others = [path for path in files_below(folder, errors) if instead is None or path != instead[0]]
    files = [*(() if instead is None else (instead,)), *((path, content_of_file(path, errors)) for path in others)]
    checks = _Checks(
        runners=checked,
        target_locations=target_locations,
        tried_by=tried_by,
        sent=None if instead is None else instead[0],
        below=folder if relative else None,
    )
    return _read_files(sorted(files, key=lambda each: each[0]), errors, checks)


def load_rule_file(
    file: Path, buses: Mapping[str, Bus], content: bytes | None = None, *, tried_by: Trial | None = None
) -> RuleSet:
    """Return the content of one rule file in any folder; its rules may use `buses`, which are defined elsewhere.

    If `content` is given, it is read in place of the file, and the limits of `rules.bounds` apply. Raises RuleFileError
    with all errors.
    """
    errors: list[RuleError] = [] if content is None else BoundedErrors()
    files = [(file, content_of_file(file, errors) if content is None else content)]
    checks = _Checks(buses, tried_by=tried_by, sent=None if content is None else file)
    return _read_files(files, errors, checks)


def _reuse_cached(folder: Path, cache: RuleCache) -> RuleSet | None:
    """Return the rule set, parsing only files that are not in the cache; None if there is an error.

    To report errors, the caller parses all files again, because cached content has no lines and columns.
    """
    errors: list[RuleError] = []
    parts, expressions = list[RuleSet](), ExpressionSizes()
    for path in files_below(folder, errors):
        parts.append(_part(path, cache, errors))
        expressions.add(parts[-1].expressions)
        if expressions.are_too_large:
            return None
    if errors:
        return None
    cache.forget_others()
    known = last_joined(parts)
    if known is None:
        joined = RuleSet.join(parts)
        if _names(joined) < sum(map(_names, parts)):
            return None  # a name is defined twice
        rule_set = _with_operations_bus(joined)
        if any(_conflicts(rule_set)) or any(webhook_conflicts(rule_set.buses)):
            return None
        known = keep_joined(parts, rule_set, zones_of(rule_set))
    return known.rule_set if not known.zones or known.zones <= todays_time_zones() else None


def _names(rules: RuleSet) -> int:
    return len(rules.buses) + len(rules.rules) + len(rules.modes) + len(rules.quotas)


def _part(path: Path, cache: RuleCache, errors: list[RuleError]) -> RuleSet:
    """Return the content of one file from the cache, or parse it and cache it unless it has errors."""
    content = content_of_file(path, errors)
    known = cache.find(content) if content is not None else None
    if content is None or known is not None:
        return known or RuleSet()
    before = len(errors)
    top = _top(content, path, errors)
    if top is None:
        return RuleSet()
    part = _read_file(_Definitions([top], errors), errors)
    return part if len(errors) > before else cache.keep(content, part)


@dataclass(frozen=True)
class _Checks:
    """The options for reading and checking rule files.

    `buses` are defined elsewhere. `runners` says whether a runner without rules is an error. `sent` is the path whose
    content a request contains. Errors show paths relative to `below`, if given.
    """

    buses: Mapping[str, Bus] = field(default_factory=dict)
    runners: bool = False
    target_locations: TargetLocations | None = None
    tried_by: Trial | None = None
    sent: Path | None = None
    below: Path | None = None


def _read_files(contents: Sequence[tuple[Path, bytes | None]], errors: list[RuleError], checks: _Checks) -> RuleSet:
    """Return the rule set of files. Raises RuleFileError with all errors.

    The content of an unreadable file is None, and its error has already been recorded."""
    below = checks.below
    todays_time_zones()
    tops = [
        None
        if content is None
        else _top(content, path.relative_to(below) if below else path, errors, bounded=path == checks.sent)
        for path, content in contents
    ]
    definitions = _Definitions([top for top in tops if top is not None], errors)
    read = _read_file(definitions, errors)
    rule_set = _with_operations_bus(read.model_copy(update={"buses": {**checks.buses, **read.buses}}))
    nodes = {name: found[0] for name, found in definitions.rules.items()}
    if None not in tops:  # otherwise a missing bus may be in a file that cannot be read
        errors.extend(field_or_rule(nodes[rule], field).error(*texts) for rule, field, *texts in _conflicts(rule_set))
        buses_at = {name: found[0] for name, found in definitions.buses.items()}
        errors.extend(
            field_or_rule(field_or_rule(buses_at[bus], "webhooks"), name).error_at_key(
                f"the bus {other!r} also has a webhook {name!r}", "Give it another name: its path is /v1/hooks/<name>"
            )
            for bus, name, other in webhook_conflicts(rule_set.buses)
            if bus in buses_at
        )
    if checks.target_locations is not None:
        errors.extend(obstacles(rule_set, nodes, checks.target_locations))
    if checks.runners:
        runners_at = {name: found[0] for name, found in definitions.runners.items()}
        errors.extend(unknown_runners(rule_set, runners_at))
    if checks.tried_by is not None and not errors:
        errors.extend(_run_tests(rule_set, nodes, checks.tried_by))
    if errors:
        raise RuleFileError(sorted(errors, key=lambda error: (error.file, error.line, error.column)))
    return rule_set


class _Definitions:
    """The unparsed definitions in files: for each name, all nodes that define a bus, rule, owner or runner."""

    def __init__(self, tops: Iterable[Node], errors: list[RuleError]) -> None:
        self.buses: dict[str, list[Node]] = {}
        self.rules: dict[str, list[Node]] = {}
        self.owners: dict[str, list[Node]] = {}
        self.runners: dict[str, list[Node]] = {}
        for top in tops:
            fields = Fields(top, errors, "a rule file")
            of_kinds = {"owners": self.owners, "buses": self.buses, "runners": self.runners, "rules": self.rules}
            for kind, found in of_kinds.items():
                for name, node in fields.mapping(kind).items():
                    found.setdefault(name, []).append(node)
            fields.close()


def _read_file(definitions: _Definitions, errors: list[RuleError]) -> RuleSet:
    """Return the buses, runners, rules and owners of files, and record the errors in them and in their names."""
    buses = _merge(definitions.buses, "bus", read_bus, errors)
    own = buses.get(OPERATIONS_BUS.name)
    if own is not None:
        node = definitions.buses[own.name][0]
        message = f"the bus {own.name!r} belongs to EventBridge"
        if own.source.type == OPERATIONS_BUS.source.type:
            remedy = "Remove it, because it always exists, or give it a source of another type"
            errors.append(node.error_at_key(message, remedy))
        if own.webhooks:
            errors.append(node.error_at_key(f"{message}, and cannot have webhooks", "Define them below another bus"))
    modes = _merge(definitions.runners, "runner", read_runner, errors)
    expressions = ExpressionSizes()
    rules = _merge(definitions.rules, "rule", partial(read_rule, expressions=expressions), errors)
    quotas = _merge(definitions.owners, "owner", read_owner, errors)
    return RuleSet(buses=buses, rules=rules, modes=modes, quotas=quotas, expressions=expressions.of_each)


def _with_operations_bus(read: RuleSet) -> RuleSet:
    """Return `read`, with the bus `eventbridge` added if a rule names it and no file defines it."""
    if OPERATIONS_BUS.name in read.buses or all(rule.bus != OPERATIONS_BUS.name for rule in read.rules.values()):
        return read
    own = {OPERATIONS_BUS.name: OPERATIONS_BUS}
    return read.model_copy(update={"buses": {**read.buses, **own}})


def _top(content: bytes, path: Path, errors: list[RuleError], *, bounded: bool = False) -> Node | None:
    """Return the top-level value of a file; None if it is empty, cannot be parsed or is not a rule file.

    If the content came with a request, errors may quote it. Otherwise nothing of a file that is not a rule file is
    quoted, because a path or link may lead to any file on the host.
    """
    known = len(errors)
    top = read_yaml(content, str(path), errors, bounded=bounded)
    location = Location(str(path), 1, 1)
    wrong = len(errors) > known
    if top is None and not wrong:
        errors.append(location.error("$", "the file is empty", "Write buses: or rules:, or remove the file"))
    elif not bounded and (wrong or isinstance(getattr(top, "value", None), dict)) and not is_rule_file(top, content):
        del errors[known:]
        errors.append(location.error("$", *NO_RULE_FILE))
        return None
    return top


def _merge(
    nodes: dict[str, list[Node]],
    noun: str,
    read: Callable[[str, Node, list[RuleError]], Thing],
    errors: list[RuleError],
) -> dict[str, Thing]:
    """Return the first definition of each name, and record the errors in all of them."""
    merged: dict[str, Thing] = {}
    for name, (first, *others) in nodes.items():
        merged[name] = read(name, first, errors)
        for node in others:
            message = f"the {noun} {name!r} is already defined at {first.key}"
            errors.append(node.error_at_key(message, "Rename or remove one of the two"))
            read(name, node, errors)
    return merged


def _conflicts(rule_set: RuleSet) -> Iterator[tuple[str, str, str, str]]:
    """Yield the conflicts between rules and buses, and among rules, as (rule, field, message, remedy)."""
    runners, pools, unknown = dict[str, Rule](), dict[str, Rule](), 0
    for rule in rule_set.rules.values():
        if rule.bus and rule.bus not in rule_set.buses:
            remedy = nearest(rule.bus, rule_set.buses, unknown) or "Define it under buses in a rule file"
            unknown += 1
            yield rule.name, "bus", f"there is no bus {rule.bus!r}", remedy
            continue
        first = runners.setdefault(rule.runner, rule)
        if rule.runner and first.bus != rule.bus:
            message = (
                f"the runner {rule.runner!r} already consumes the bus {first.bus!r}, for the rule {first.name!r}, "
                "and a runner can consume only one bus"
            )
            yield rule.name, "runner", message, "Name another runner, or remove runner: to use the runner of the bus"
        yield from _pool_conflicts(rule, pools)


def _pool_conflicts(rule: Rule, pools: dict[str, Rule]) -> Iterator[tuple[str, str, str, str]]:
    if rule.pool is None or rule.concurrency is None:
        return
    first = pools.setdefault(rule.pool, rule)
    if first.concurrency != rule.concurrency:
        message = (
            f"the rule {first.name!r} gives the pool {rule.pool!r} {first.concurrency} slots, not {rule.concurrency}"
        )
        yield rule.name, "concurrency", message, "Write the same concurrency in every rule of the pool, or only in one"


def _run_tests(rule_set: RuleSet, nodes: dict[str, Node], tried_by: Trial) -> Iterator[RuleError]:
    for name, node in nodes.items():
        rule = rule_set.rules[name]
        for test in tests_of(rule, Fields(node, [], "a rule"), []):
            yield from tried_by(rule, test)


_GIB = 1024**3


def read_owner(name: str, node: Node, errors: list[RuleError]) -> Owner:
    """Return an owner's quotas; errors in them are added to `errors`."""
    if not NAME.fullmatch(name):
        errors.append(node.error_at_key(f"{name!r} is not a valid name for an owner", NAME_REMEDY))
    fields = Fields(node, errors, "an owner")
    read = Owner(
        published_per_second=fields.rate("published", of="events"),
        pending_max=read_pending_max(fields, None, errors),
        stored_bytes=fields.size("stored", _GIB, 1_024, 1_024**2 * _GIB) if fields.has("stored") else None,
    )
    fields.close()
    return read


def read_runner(name: str, node: Node, errors: list[RuleError]) -> Runner:
    """Return a runner's configuration; a wrong field adds an error to `errors` and gets its default."""
    if not NAME.fullmatch(name):
        errors.append(node.error_at_key(f"{name!r} is not a valid name for a runner", NAME_REMEDY))
    fields = Fields(node, errors, "a runner")
    read = Runner(mode=fields.choice("mode", "batch", MODES), streaming=_streaming(fields))
    if read.mode == "batch":
        fields.refuse(
            ["streaming"],
            "{} applies only to mode: streaming, but the mode is batch",
            "Write mode: streaming, or remove it",
        )
    fields.close()
    return read


def _streaming(fields: Fields) -> StreamingTimes:
    if fields.get("streaming") is None:
        return StreamingTimes()
    own, usual = fields.nested("streaming", "streaming mode"), StreamingTimes()
    read = StreamingTimes(
        task_duration=own.duration("task_duration", usual.task_duration, 60.0, 86_400.0),
        batch_interval=own.duration("batch_interval", usual.batch_interval, 1.0, 60.0),
        idle=own.duration("idle", usual.idle, 5.0, 86_400.0),
        backlog=own.duration("backlog", usual.backlog, 1.0, 3_600.0),
    )
    own.close()
    return read


def unknown_runners(rule_set: RuleSet, nodes: Mapping[str, Node]) -> Iterator[RuleError]:
    """Yield an error for each configured runner without rules."""
    known = rule_set.runners()
    for number, name in enumerate(sorted(rule_set.modes.keys() - known.keys())):
        remedy = nearest(name, known, number) or "Write runner: <name> in a rule, or remove the runner"
        yield nodes[name].error_at_key(f"no rule has the runner {name!r}", remedy)


def obstacles(rule_set: RuleSet, nodes: Mapping[str, Node], target_locations: TargetLocations) -> Iterator[RuleError]:
    """Yield an error for each target that cannot be used on this machine, given the locations it may write to."""
    for rule in rule_set.rules.values():
        for target in rule.targets.values():
            node = field_or_rule(field_or_rule(nodes[rule.name], "targets"), target.name)
            yield from _obstacle(target, node, target_locations)
            if target.dead_letter_queue is not None:
                yield from _obstacle(
                    target.dead_letter_queue, field_or_rule(node, "dead_letter_queue"), target_locations
                )


def _obstacle(target: Target, node: Node, target_locations: TargetLocations) -> Iterator[RuleError]:
    kind = TARGET_TYPES.find(target.type)
    obstacle = (
        kind.obstacle(target, target_locations) if kind is not None else None
    )  # an unknown type already has an error
    if obstacle is not None:
        yield field_or_rule(node, obstacle.field).error(obstacle.message, obstacle.remedy)


def field_or_rule(node: Node, field: str) -> Node:
    """Return the field of a mapping, or the mapping itself if the field is not given."""
    return node.value.get(field, node) if isinstance(node.value, dict) else node
