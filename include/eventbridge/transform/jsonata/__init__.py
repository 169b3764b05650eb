"""Renders the JSONATA form, whose expression a separate process with limited CPU time and memory evaluates."""

from eventbridge.transform.jsonata.process import JsonataRenderer

__all__ = ["JsonataRenderer"]
