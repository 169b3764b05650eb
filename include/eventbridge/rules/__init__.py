"""The model of rules, and the loader of rule files in YAML.

`load_rules` is imported on first use: reading files checks transforms, whose package needs the model, and a Spark
worker that only reads frozen rule sets needs no YAML.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eventbridge.rules.model import Bus, RetryPolicy, Rule, Source, Target, Transform
from eventbridge.rules.rule_set import RuleSet

if TYPE_CHECKING:
    from eventbridge.rules.load import load_rules

__all__ = ["Bus", "RetryPolicy", "Rule", "RuleSet", "Source", "Target", "Transform", "load_rules"]


def __getattr__(name: str) -> Any:
    if name == "load_rules":
        from eventbridge.rules.load import load_rules

        return load_rules
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
