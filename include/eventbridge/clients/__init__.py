"""Clients of external servers, shared by sources, targets, stores and the ledger."""
