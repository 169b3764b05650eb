"""Compiled (Numba) passes over JSON text: strict validation, and the locations of requested parts of an event."""
