"""Compiled (Numba) passes over JSON text, which validate it strictly and locate the requested parts of an event."""
