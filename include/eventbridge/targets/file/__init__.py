"""Targets of the type `file`: deliveries are lines of a file."""
