"""Turns the events of a slice into delivery files; this code also runs in Spark workers.

It imports no ledger, Spark or stage.
"""
