"""Compiled (Numba) passes over JSON text: strict validation, and where the wanted parts of an event lie."""
