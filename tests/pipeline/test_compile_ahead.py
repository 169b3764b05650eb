"""Compiling ahead of the first event."""

from __future__ import annotations

from eventbridge.routing.warm_up import compile_ahead


def test_an_installation_that_routes_is_ready() -> None:
    """One event goes through every cheap form, and a second call does nothing."""
    compile_ahead()
    done = compile_ahead.cache_info().misses  # two, where threads of earlier tests began at once
    compile_ahead()

    assert compile_ahead.cache_info().misses == done
