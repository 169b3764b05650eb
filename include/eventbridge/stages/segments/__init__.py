"""Outcome segments: what a push wrote down, as the ledger names it."""
