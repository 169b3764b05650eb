"""Reads the state of an installation from its ledger, store and buses, and changes nothing."""
