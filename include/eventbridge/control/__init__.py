"""Operates an installation: overrides, releases, tokens, publishing of events and rules, and trials."""
