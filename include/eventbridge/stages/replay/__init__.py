"""Delivers archived events again: plans batches of them, and says what was taken."""
