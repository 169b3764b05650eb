"""Reads events from buses: from logs by range, from queues with acknowledgement."""
