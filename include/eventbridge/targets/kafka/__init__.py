"""Targets of the type `kafka`: deliveries are messages of a topic."""
