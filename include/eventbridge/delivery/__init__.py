"""Delivers what a chunk names, target by target."""
