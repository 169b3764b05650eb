"""The form JSONATA: an expression that is evaluated in a separate process with limited CPU time and memory."""

from eventbridge.transform.jsonata.process import JsonataRenderer

__all__ = ["JsonataRenderer"]
