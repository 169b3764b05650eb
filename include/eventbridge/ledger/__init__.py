"""The SQL database of state: who has which batch, chunk and pending delivery, and how far each bus was consumed."""

from eventbridge.ledger.ledger import Ledger

__all__ = ["Ledger"]
