"""Turns the events of a slice into delivery files.

The code also runs in Spark workers, so it imports no ledger, Spark or stage.
"""
