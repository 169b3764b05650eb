"""Removes expired data from the store, the ledger and the embedded buses."""
