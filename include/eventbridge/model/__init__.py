"""Defines the shared data model: frozen values that depend neither on the ledger nor on a framework."""
