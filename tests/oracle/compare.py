"""`make oracle`: our matcher against Event Ruler on generated pairs of a rule and an event.

Every result that differs must belong to a class of docs/reference/patterns.md (`oracle.differences`), every refused
rule to one of `oracle.refusals`. Prints how often each class was met; exits with 1 and the smallest pair if one is in
none.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from oracle import ruler
from oracle.contradictions import results_of_parts
from oracle.differences import DIFFERENCES
from oracle.draw_pairs import Drawing
from oracle.matchers import MATCHERS
from oracle.pair import Pair
from oracle.refusals import REFUSALS
from oracle.shrink import shrink

from eventbridge.event.json_document import write_document
from eventbridge.matching.pattern import Pattern, parse_pattern, write_pattern

EVENTS_OF_A_RULE = 30
SHOWN = 3


@dataclass
class Tally:
    """What a comparison came to."""

    pairs: int = 0
    matched: int = 0
    differed: int = 0
    refused: int = 0
    of_class: Counter[str] = field(default_factory=Counter)
    differed_of_class: Counter[str] = field(default_factory=Counter)
    refused_of_class: Counter[str] = field(default_factory=Counter)
    contradicted: int = 0
    unexplained: list[tuple[Pair, str]] = field(default_factory=list)
    unexplained_refusals: list[tuple[Pattern, str]] = field(default_factory=list)
    other_than_reference: list[Pair] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether anything differed that must not."""
        return bool(self.unexplained or self.unexplained_refusals or self.other_than_reference)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare and print; return the exit code."""
    options = _options(arguments)
    started = time.monotonic()
    try:
        ruler.prepare()
        tally = compare(options.pairs, options.seed, options.matcher)
        _print_line("\n".join(table(tally)))
        _print_line("\n".join(failures(tally, options.matcher)))
    except ruler.OracleMissing as missing:
        print(missing, file=sys.stderr)  # noqa: T201
        return 4
    _print_line(f"{options.matcher} against Event Ruler 2.0.1, seed {options.seed}: {time.monotonic() - started:.0f} s")
    return 1 if tally.failed else 0


def compare(pairs: int, seed: int, matcher: str) -> Tally:
    """Ask both about generated rules and events until there are so many pairs that both have responded."""
    tally, drawing = Tally(), Drawing(seed)
    while tally.pairs < pairs:
        missing = -(-(pairs - tally.pairs) // EVENTS_OF_A_RULE)
        drawn = [(write_document(pattern), events) for pattern, events in drawing.rules(missing, EVENTS_OF_A_RULE)]
        asked = ruler.Asked(drawn)
        rules = [(parse_pattern(text), events) for text, events in drawn]
        ours = list(MATCHERS[matcher](rules))
        expected = ours if matcher == "reference" else list(MATCHERS["reference"](rules))
        for rule, theirs, our, reference in zip(rules, asked.results(), ours, expected, strict=True):
            _add(tally, rule, theirs, our, reference)
    by_parts = results_of_parts([pair for pair, _ in tally.unexplained])
    found = len(tally.unexplained)
    tally.unexplained = [
        (pair, our) for (pair, our), parts in zip(tally.unexplained, by_parts, strict=True) if parts != our
    ]
    tally.contradicted = found - len(tally.unexplained)
    return tally


def _add(tally: Tally, rule: tuple[Pattern, list[str]], theirs: str, ours: str, reference: str) -> None:
    pattern, events = rule
    if theirs.startswith("refused: "):
        tally.refused += 1
        names = [each.name for each in REFUSALS if each.applies(pattern)]
        tally.refused_of_class.update(names)
        if not names:
            tally.unexplained_refusals.append((pattern, theirs))
        return
    for event, their, our, expected in zip(events, theirs, ours, reference, strict=True):
        pair = Pair(pattern, event)
        names = [each.name for each in DIFFERENCES if each.applies(pair)]
        tally.pairs += 1
        tally.matched += our == "1"
        tally.of_class.update(names)
        if our != expected:
            tally.other_than_reference.append(pair)
        if our != their:
            tally.differed += 1
            tally.differed_of_class.update(names)
            if not names:
                tally.unexplained.append((pair, our))


def table(tally: Tally) -> Iterator[str]:
    """Yield the lines that say what was compared and how often each class was met."""
    yield f"{tally.pairs:,} pairs of a rule and an event, {tally.matched / tally.pairs:.0%} of them a match"
    alike = tally.pairs - tally.differed
    yield f"{alike:,} decided alike, {tally.differed:,} otherwise; a pair may be of several classes"
    yield f"\n{'class':<52}{'pairs':>8}{'alike':>8}{'otherwise':>11}"
    for each in DIFFERENCES:
        met, differed = tally.of_class[each.name], tally.differed_of_class[each.name]
        yield f"{each.name:<52}{met:>8,}{met - differed:>8,}{differed:>11,}"
    yield f"{'another condition of the same path is added':<52}{'':>8}{'':>8}{tally.contradicted:>11,}"
    yield f"{'none':<52}{'':>8}{'':>8}{len(tally.unexplained):>11,}"
    yield f"\n{tally.refused:,} rules refused by Event Ruler, and not compared"
    for refusal in REFUSALS:
        yield f"{refusal.name:<68}{tally.refused_of_class[refusal.name]:>11,}"
    yield f"{'none':<68}{len(tally.unexplained_refusals):>11,}\n"


def failures(tally: Tally, matcher: str) -> Iterator[str]:
    """Yield what must not be, a few of each kind, and the pairs as small as they get."""
    by_rule = {pair.pattern: (pair, our) for pair, our in reversed(tally.unexplained)}
    for pair, our in list(by_rule.values())[-SHOWN:]:
        yield f"We respond with {our} (1 matches, 0 does not), Event Ruler does not, and no class explains why:"
        yield from _shown(shrink(pair, lambda candidates: _unexplained(candidates, matcher)))
    for pattern, why in tally.unexplained_refusals[:SHOWN]:
        yield f"Event Ruler refuses a pattern, and no class explains why; {why}:"
        yield f"  pattern  {write_document(write_pattern(pattern))}\n"
    for pair in list({pair.pattern: pair for pair in tally.other_than_reference}.values())[:SHOWN]:
        yield f"The {matcher} and the reference matcher disagree; make it a conformance case:"
        yield from _shown(shrink(pair, lambda candidates: _other_than_reference(candidates, matcher)))


def _shown(pair: Pair) -> Iterator[str]:
    yield f"  pattern  {write_document(write_pattern(pair.pattern))}"
    yield f"  event    {pair.text}\n"


def _question(pair: Pair) -> tuple[str, list[str]]:
    return write_document(write_pattern(pair.pattern)), [pair.text]


def _unexplained(pairs: list[Pair], matcher: str) -> list[bool]:
    asked = ruler.Asked(map(_question, pairs))
    ours = list(MATCHERS[matcher]([(pair.pattern, [pair.text]) for pair in pairs]))
    wrong = {
        number: pair
        for number, (pair, theirs, our) in enumerate(zip(pairs, asked.results(), ours, strict=True))
        if theirs in ("0", "1", "!") and theirs != our and not any(each.applies(pair) for each in DIFFERENCES)
    }
    by_parts = dict(zip(wrong, results_of_parts(list(wrong.values())), strict=True))
    return [number in wrong and by_parts[number] != our for number, our in enumerate(ours)]


def _other_than_reference(pairs: list[Pair], matcher: str) -> list[bool]:
    rules = [(pair.pattern, [pair.text]) for pair in pairs]
    return [one != other for one, other in zip(MATCHERS[matcher](rules), MATCHERS["reference"](rules), strict=True)]


def _print_line(text: str) -> None:
    if text:
        print(text, flush=True)  # noqa: T201


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make oracle", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--matcher", choices=list(MATCHERS), default=list(MATCHERS)[-1], help="which of ours (%(default)s)"
    )
    parser.add_argument("--pairs", type=int, default=200_000, help="how many both must respond (%(default)s)")
    parser.add_argument("--seed", type=int, default=20131, help="of the generator (%(default)s)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
