"""The databases that can hold a ledger. Each has one engine, which is the only code specific to it."""
