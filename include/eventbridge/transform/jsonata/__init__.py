"""The form JSONATA: an expression evaluated in a process of its own, which is limited in CPU time and memory."""

from eventbridge.transform.jsonata.process import JsonataRenderer

__all__ = ["JsonataRenderer"]
