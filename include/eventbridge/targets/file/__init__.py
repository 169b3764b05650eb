"""Targets of the type `file`, which append deliveries to a file as lines."""
