"""Transforms are compiled before the first event."""

from __future__ import annotations

from eventbridge.routing.warm_up import compile_ahead


def test_an_installation_that_routes_is_ready() -> None:
    """One event is routed through every cheap form, and a second call does nothing."""
    compile_ahead()
    done = compile_ahead.cache_info().misses  # two, if threads of earlier tests started concurrently
    compile_ahead()

    assert compile_ahead.cache_info().misses == done
