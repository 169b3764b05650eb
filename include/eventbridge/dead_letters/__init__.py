"""Selects and reads dead letters, and copies them to dead letter queues."""
