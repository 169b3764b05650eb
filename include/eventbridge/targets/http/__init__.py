"""Targets of the type `http`, which send deliveries as POST requests."""
