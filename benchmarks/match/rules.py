"""Makes rule sets for the events of `benchmarks.match.events`: mixed ones and ones of a single kind of condition.

Every condition is one that Event Ruler has too. A rule set of R rules is the first R of its 10,000.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from benchmarks.match import events as e

Rule: TypeAlias = dict[str, Any]
"""A pattern as JSON."""

RULES: Final = 10_000

_TYPE_SHARES: Final = list(e.zipf(len(e.TYPES)))
_FIELD_COUNTS: Final = (0.1, 0.35, 0.35, 0.2)
"""Shares of rules of one, two, three and four fields."""


def mixed(count: int = RULES, *, seed: int = 1) -> list[Rule]:
    """Return rules of one to four fields out of fourteen kinds of condition; each matches 0.6 % of the events."""
    draw = random.Random(seed)
    return [_mixed_rule(draw) for _ in range(count)]


def of_kind(kind: str, count: int = RULES, *, seed: int = 1) -> list[Rule]:
    """Return rules with conditions of one kind only: `wildcard`, `numeric-range` or `anything-but`."""
    draw = random.Random(seed)
    make = {"wildcard": _narrow_wildcard, "numeric-range": _numeric_range, "anything-but": _three_exclusions}[kind]
    rules = []
    for _ in range(count):
        rule: Rule = {}
        make(draw, rule)
        rules.append(rule)
    return rules


def many_break_points(count: int = RULES, *, seed: int = 1) -> list[Rule]:
    """Return rules of two numeric ranges each, all on one path: four break points a rule, all different."""
    draw = random.Random(seed)
    points: set[float] = set()
    rules = []
    for _ in range(count):
        ranges: list[Any] = []
        while len(ranges) < 2:
            low = round(math.exp(draw.gauss(4, 1.2)), 6)
            high = round(low * draw.uniform(1.002, 1.02) + 0.001, 6)
            if low not in points and high not in points:
                points |= {low, high}
                ranges.append({"numeric": [">=", low, "<", high]})
        rules.append({"data": {"weight": ranges}})
    return rules


def many_conditions(count: int = RULES, *, seed: int = 1) -> list[Rule]:
    """Return rules of eight fields with 32 conditions each, some of them broad, so that a few events match."""
    draw = random.Random(seed)
    return [_rule_of_many_conditions(draw) for _ in range(count)]


def _rule_of_many_conditions(draw: random.Random) -> Rule:
    rule: Rule = {}
    subjects = [{"prefix": f"{draw.choice(e.NOUNS)}/{number:03d}"} for number in draw.sample(range(1000), 31)]
    shippers = [f"s-{number:05d}" for number in draw.sample(range(e.SHIPPERS), 31)]
    skus = [f"K-{number:04d}" for number in draw.sample(range(e.SKUS), 31)]
    _put(rule, "type", draw.sample(e.TYPES, 32))
    _put(rule, "source", _several(draw, (_prefix_of_source, _suffix_ignore_case, _wildcard, _narrow_wildcard)))
    _put(rule, "subject", [*subjects, {"prefix": f"{draw.choice(e.NOUNS)}/"}])
    _put(rule, "data.weight", _several(draw, (_numeric_range,)))
    _put(rule, "data.gateway", [*_several(draw, (_cidr,))[:31], {"cidr": "0.0.0.0/1"}])
    _put(rule, "data.shipper.id", [*shippers, {"prefix": "s-00"}])
    _put(rule, "data.shipper.email", [*_several(draw, (_prefix_of_email,))[:31], {"suffix": f"@{e.MAIL_HOSTS[0]}"}])
    _put(rule, "data.lines.sku", [*skus, {"prefix": "K-0"}])
    return rule


def _several(draw: random.Random, kinds: Sequence[Callable[[random.Random, Rule], None]]) -> list[Any]:
    """Return the conditions of 32 rules of one field that these kinds make."""
    found = []
    for number in range(32):
        rule: Any = {}
        kinds[number % len(kinds)](draw, rule)
        while isinstance(rule, dict):
            (rule,) = rule.values()
        found += rule
    return found


def many_matches(count: int = 100, *, seed: int = 1) -> list[Rule]:
    """Return rules of one broad condition, of which an event matches about one in six."""
    draw = random.Random(seed)
    rules: list[Rule] = [{} for _ in range(count)]
    for rule in rules:
        draw.choice((_one_country, _equals_ignore_case, _label))(draw, rule)
    return rules


def _mixed_rule(draw: random.Random) -> Rule:
    rule: Rule = {}
    fields = draw.choices((1, 2, 3, 4), _FIELD_COUNTS)[0]
    if fields == 1:
        KINDS[draw.choice(NARROW)](draw, rule)
        return rule
    _put(rule, "type", _type_conditions(draw))
    while (room := fields - _fields(rule)) > 0:
        KINDS[draw.choice(list(KINDS) if room > 1 else ONE_FIELD)](draw, rule)
    return rule


def _fields(rule: Rule) -> int:
    """Count the leaf lists of a rule."""
    return sum(_fields(inner) if isinstance(inner, dict) else 1 for inner in rule.values())


def _type_conditions(draw: random.Random) -> list[Any]:
    chance = draw.random()
    if chance < 0.75:
        return sorted({_type(draw) for _ in range(draw.choice((1, 1, 1, 2)))})
    if chance < 0.9:
        return [{"suffix": f".{draw.choice(e.VERBS)}"}]
    return [{"prefix": f"io.carrier.{draw.choice(e.NOUNS)}."}]


def _type(draw: random.Random) -> str:
    return draw.choices(e.TYPES, _TYPE_SHARES)[0]


def _put(rule: Rule, path: str, conditions: list[Any]) -> None:
    *outer, last = path.split(".")
    for key in outer:
        rule = rule.setdefault(key, {})
    rule[last] = conditions


def _exactly(draw: random.Random, rule: Rule) -> None:
    path, values = draw.choice(
        (("data.state", e.STATES), ("data.shipper.tier", e.TIERS), ("data.shipper.country", e.COUNTRIES))
    )
    _put(rule, path, draw.sample(values, draw.randrange(1, 4)))


def _one_of(draw: random.Random, rule: Rule) -> None:
    _put(rule, "data.shipper.id", sorted({f"s-{draw.randrange(e.SHIPPERS):05d}" for _ in range(draw.randrange(1, 6))}))


def _one_country(draw: random.Random, rule: Rule) -> None:
    _put(rule, "data.shipper.country", [draw.choice(e.COUNTRIES)])


def _label(draw: random.Random, rule: Rule) -> None:
    _put(rule, "data.labels", [draw.choice(e.LABELS)])


def _prefix(draw: random.Random, rule: Rule) -> None:
    (_prefix_of_email if draw.random() < 0.4 else _prefix_of_source)(draw, rule)


def _prefix_of_email(draw: random.Random, rule: Rule) -> None:
    _put(rule, "data.shipper.email", [{"prefix": f"{draw.choice(e.NAMES)}{draw.randrange(300):03d}"}])


def _prefix_of_source(draw: random.Random, rule: Rule) -> None:
    hub = "" if draw.random() < 0.4 else f"hub-{draw.randrange(e.HUBS):03d}/"
    _put(rule, "source", [{"prefix": f"/depots/{draw.choice(e.REGIONS)}/{hub}"}])


def _suffix(draw: random.Random, rule: Rule) -> None:
    _put(
        rule, "data.shipper.email", [{"suffix": f"{draw.choice(('', draw.randrange(10)))}@{draw.choice(e.MAIL_HOSTS)}"}]
    )


def _suffix_ignore_case(draw: random.Random, rule: Rule) -> None:
    _put(rule, "source", [{"suffix": {"equals-ignore-case": f"/{draw.choice(e.NOUNS).upper()}"}}])


def _equals_ignore_case(draw: random.Random, rule: Rule) -> None:
    _put(rule, "data.region", [{"equals-ignore-case": draw.choice(e.REGIONS).title()}])


def _wildcard(draw: random.Random, rule: Rule) -> None:
    _put(rule, "source", [{"wildcard": f"/depots/*/hub-{draw.randrange(e.HUBS // 10):02d}*/{draw.choice(e.NOUNS)}"}])


def _narrow_wildcard(draw: random.Random, rule: Rule) -> None:
    region = draw.choice((*e.REGIONS, "*", draw.choice(e.REGIONS)[:3] + "*"))
    noun = draw.choice(e.NOUNS)[: draw.randrange(3, 6)]
    _put(rule, "source", [{"wildcard": f"/depots/{region}/hub-{draw.randrange(e.HUBS // 10):02d}*/{noun}*"}])


def _numeric_bound(draw: random.Random, rule: Rule) -> None:
    if draw.random() < 0.5:
        _put(rule, "data.priority", [{"numeric": [">=", draw.randrange(3, 6)]}])
    else:
        _put(rule, "data.weight", [{"numeric": [draw.choice((">", ">=")), _weight(draw)]}])


def _numeric_range(draw: random.Random, rule: Rule) -> None:
    low = _weight(draw)
    high = round(low * draw.uniform(1.002, 1.06) + 0.01, 2)
    _put(rule, "data.weight", [{"numeric": [">=", low, "<", high]}])


def _weight(draw: random.Random) -> float:
    return round(math.exp(draw.gauss(4, 1.2)), 2)


def _cidr(draw: random.Random, rule: Rule) -> None:
    block = f"{draw.choice(e.NETWORKS)}.{draw.randrange(256)}.0.0/{draw.choice((12, 16))}"
    _put(rule, "data.gateway", [{"cidr": block}])


def _anything_but(draw: random.Random, rule: Rule) -> None:
    if draw.random() < 0.7:
        _put(rule, "data.state", [{"anything-but": draw.sample(e.STATES, draw.randrange(1, 4))}])
    else:
        _put(rule, "data.region", [{"anything-but": {"prefix": draw.choice(("eu-", "us-", "ap-"))}}])


def _three_exclusions(draw: random.Random, rule: Rule) -> None:
    _put(rule, "type", [_type(draw)])
    _put(rule, "data.shipper.country", [{"anything-but": draw.sample(e.COUNTRIES, draw.randrange(9, 12))}])


def _exists(draw: random.Random, rule: Rule) -> None:
    _put(rule, "data.fault.code", [{"exists": draw.random() < 0.7}])


def _lines(draw: random.Random, rule: Rule) -> None:
    _put(rule, "data.lines.sku", [f"K-{draw.randrange(e.SKUS):04d}"])
    _put(rule, "data.lines.quantity", [{"numeric": [">=", draw.randrange(1, 4)]}])


KINDS: Final[dict[str, Callable[[random.Random, Rule], None]]] = {
    "exactly": _exactly,
    "one-of": _one_of,
    "label": _label,
    "prefix": _prefix,
    "suffix": _suffix,
    "suffix-ignore-case": _suffix_ignore_case,
    "equals-ignore-case": _equals_ignore_case,
    "wildcard": _wildcard,
    "numeric-bound": _numeric_bound,
    "numeric-range": _numeric_range,
    "cidr": _cidr,
    "anything-but": _anything_but,
    "exists": _exists,
    "lines": _lines,
}
"""The fourteen kinds: each puts its condition into a rule."""

ONE_FIELD: Final = [kind for kind in KINDS if kind != "lines"]

NARROW: Final = ("one-of", "wildcard", "numeric-range", "cidr")
"""Kinds that make a rule by themselves without matching every tenth event."""
