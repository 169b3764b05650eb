"""The code of Spark workers: turns events of a slice into delivery files. It imports no ledger, Spark or stage."""
