"""Audits committed batches, and repairs damaged ones."""
