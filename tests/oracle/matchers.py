"""Our matchers as the comparison asks them: rules with the texts of their events in, `1` and `0` out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from eventbridge.matching.pattern import Pattern
from eventbridge.matching.reference import matches

Rules = Sequence[tuple[Pattern, list[str]]]
Responses = Iterator[str]
TOGETHER: Final = 100
"""So many rules the kernel compiles at a time: each also sees the events of the others, which must change nothing."""


def reference(rules: Rules) -> Responses:
    """Yield, for each rule, a character per event, by the reference matcher."""
    for pattern, events in rules:
        yield "".join("01"[matches(pattern, event)] for event in events)


def kernel(rules: Rules) -> Responses:
    """Yield the same by the kernel."""
    import pyarrow as pa

    compile_rules: Any = getattr(import_module("eventbridge.matching"), "compile_rules")  # noqa: B009 - it is made when asked for
    for start in range(0, len(rules), TOGETHER):
        together = rules[start : start + TOGETHER]
        texts = [event for _, events in together for event in events]
        found = compile_rules([pattern for pattern, _ in together]).match(pa.array(texts, pa.string()))
        offsets, matched = [int(offset) for offset in found.offsets], [int(rule) for rule in found.rules]
        event = 0
        for number, (_, events) in enumerate(together):
            results = [number in matched[offsets[at] : offsets[at + 1]] for at in range(event, event + len(events))]
            yield "".join("01"[result] for result in results)
            event += len(events)


MATCHERS: Final[dict[str, Callable[[Rules], Responses]]] = {"reference": reference}
if find_spec("eventbridge.matching.kernel") is not None:
    MATCHERS["kernel"] = kernel
"""The matchers there are, the one that runs in production last."""
