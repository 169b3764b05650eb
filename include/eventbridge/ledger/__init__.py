"""The SQL database with the state of all runners: batches, chunks, pending deliveries and offsets."""

from eventbridge.ledger.ledger import Ledger

__all__ = ["Ledger"]
