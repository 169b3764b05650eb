"""Compiling ahead of the first event."""

from __future__ import annotations

from eventbridge.routing.warm_up import compile_ahead


def test_an_installation_that_routes_is_ready() -> None:
    """One event goes through every cheap form, and a second call does nothing."""
    compile_ahead()
    compile_ahead()

    assert compile_ahead.cache_info().misses == 1
