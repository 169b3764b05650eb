"""The model of rules.

Reading YAML rule files is in `rules.load`, which is not imported here: processes that read frozen rule sets need no
YAML.
"""

from eventbridge.rules.model import Bus, RetryPolicy, Rule, Source, Target, Transform
from eventbridge.rules.rule_set import RuleSet

__all__ = ["Bus", "RetryPolicy", "Rule", "RuleSet", "Source", "Target", "Transform"]
