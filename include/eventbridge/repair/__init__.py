"""Audits of committed batches, and repairs of damaged ones."""
