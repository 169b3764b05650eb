"""Routes events: matches them with the rules, and renders the outputs for targets.

The code also runs in Spark workers, so it imports neither the ledger, nor Spark, nor a stage.
"""
