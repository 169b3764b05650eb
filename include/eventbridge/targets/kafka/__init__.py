"""Targets of the type `kafka`, which publish deliveries as messages to a topic."""
