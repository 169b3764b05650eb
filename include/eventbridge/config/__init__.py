"""Reads the configuration: settings, connections, and quantities in human-readable form."""
