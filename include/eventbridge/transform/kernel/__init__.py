"""Transforms rendered by compiled code from slices of the event's own bytes, byte for byte as the renderers do it.

What it cannot decide, an object with one key twice for instance, it hands back to the renderer, delivery by delivery.
"""
