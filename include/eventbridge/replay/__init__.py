"""Replays archived events: plans batches of them, and accounts for the taken events."""
