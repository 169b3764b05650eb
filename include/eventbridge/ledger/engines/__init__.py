"""The databases that can hold a ledger: one engine each, the only code specific to that database."""
