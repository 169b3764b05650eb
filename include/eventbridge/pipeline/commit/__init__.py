"""Reconciles the events of a batch and commits the offsets."""
