"""The SQL database of state: batches, chunks and pending deliveries with their holders, and each bus's offsets."""

from eventbridge.ledger.ledger import Ledger

__all__ = ["Ledger"]
