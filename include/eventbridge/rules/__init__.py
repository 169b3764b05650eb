"""Defines rules, buses and targets, and the rule set that holds them.

`rules.load` reads YAML rule files. It is not imported here, because processes that read frozen rule sets need no YAML.
"""

from eventbridge.rules.model import Bus, RetryPolicy, Rule, Source, Target, Transform
from eventbridge.rules.rule_set import RuleSet

__all__ = ["Bus", "RetryPolicy", "Rule", "RuleSet", "Source", "Target", "Transform"]
