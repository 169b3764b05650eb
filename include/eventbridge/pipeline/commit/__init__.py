"""Reconciles the events of a batch and moves the offsets."""
