"""Reads events from buses: from logs by ranges of offsets, from queues with acknowledgements."""
