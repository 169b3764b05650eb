"""Configuration: settings, connections, and quantities in human-readable form."""
