"""Compiled code that renders transforms from slices of the events' bytes, with the same output as the Python renderers.

It hands each delivery that it cannot render, such as one with a duplicate key in an object, back to the renderer.
"""
