"""Configuration: settings, connections, and quantities as people write them."""
