"""Delivers what a chunk or an open batch holds, target by target, and records every response."""
