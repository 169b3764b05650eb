"""The version of this package, beside everything else so that whoever tells it imports nothing more."""

from __future__ import annotations

__version__ = "0.2.0"
