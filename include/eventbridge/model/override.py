"""Overrides of rules and targets beside the rule files, and their effect on each."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from eventbridge.model.hold_reasons import EXPECTATION_FAILED, RULE_PAUSED, TARGET_PAUSED

OverrideKind = Literal["paused", "disabled", "priority", "rate"]


@dataclass(frozen=True)
class OperatorOverride:
    """One override: who set it, and since when; it holds until it is cleared.

    `target` "" = of the rule. `value` is a priority's name, or deliveries a second as text; else "".
    """

    rule: str
    target: str
    kind: OverrideKind
    value: str
    set_by: str
    since: datetime


class OperatorOverrides:
    """All overrides at one moment, and the rules that are on hold until an operator releases them."""

    def __init__(self, values: Mapping[tuple[str, str, str], str] | None = None, held: Collection[str] = ()) -> None:
        """Take values by (rule, target, kind), and the rules with a failed expectation."""
        self._values = dict(values or {})
        self._held = frozenset(held)

    def __bool__(self) -> bool:
        """Return whether there is an override, or a rule on hold."""
        return bool(self._values or self._held)

    @property
    def holds(self) -> bool:
        """Return whether anything is paused or on hold."""
        return bool(self._held) or any(kind == "paused" for _, _, kind in self._values)

    def hold_reason(self, rule: str, target: str) -> str:
        """Return why a target is on hold: it or its rule is paused, or its rule on hold; "" if none is."""
        if (rule, "", "paused") in self._values:
            return RULE_PAUSED
        if (rule, target, "paused") in self._values:
            return TARGET_PAUSED
        return EXPECTATION_FAILED if rule in self._held else ""

    def disabled_rules(self) -> set[str]:
        """Return the rules that match no event because they are disabled."""
        return {rule for rule, _, kind in self._values if kind == "disabled"}

    def priorities(self) -> dict[str, str]:
        """Return, by rule, the priority that replaces that of its file."""
        return {rule: value for (rule, _, kind), value in self._values.items() if kind == "priority"}

    def rate(self, rule: str, target: str, of_file: float | None) -> float | None:
        """Return how many deliveries a second a target may get: by its override, else by its file."""
        value = self._values.get((rule, target, "rate"))
        return of_file if value is None else float(value)
