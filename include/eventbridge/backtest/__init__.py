"""Runs candidate rules over the archive, or compares two candidates, and reports; nothing is delivered."""
