"""Decisions on which data safety depends: pure functions; the clock is passed in."""
