"""Decides which patterns an event matches."""
