"""The model of rules. `rules.load` reads rule files in YAML, which a worker of frozen rule sets never needs."""

from eventbridge.rules.model import Bus, RetryPolicy, Rule, Source, Target, Transform
from eventbridge.rules.rule_set import RuleSet

__all__ = ["Bus", "RetryPolicy", "Rule", "RuleSet", "Source", "Target", "Transform"]
