"""Parses CloudEvents and strict JSON documents, and derives ids from them."""
