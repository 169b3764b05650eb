"""Runs candidate rules over the archive, or compares two, and reports; nothing is delivered."""
