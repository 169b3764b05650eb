"""Transforms rendered by compiled code from slices of the event's own bytes, byte for byte as the renderers do it.

It hands back each delivery that it cannot render, such as one of an object with a duplicate key, to the renderer.
"""
