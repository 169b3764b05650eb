"""Proves the books of a batch and moves the offsets."""
