"""Decisions that lose or save data: pure functions, the clock passed in."""
