"""Targets of the type `http`: deliveries are POST requests."""
