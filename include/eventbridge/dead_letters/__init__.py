"""Selects and reads dead letters, and plans their redrives."""
