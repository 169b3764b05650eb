"""Operates an installation: sets overrides, releases rules, manages tokens, publishes events and rules, and runs tests.

The tests are those of rule files, patterns, targets and backtests. None of them delivers an event by a rule.
"""
