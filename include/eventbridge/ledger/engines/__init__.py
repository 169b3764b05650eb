"""The databases that a ledger may be kept in: an engine each, which alone knows that database."""
