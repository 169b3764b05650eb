"""What a Spark worker runs: events of a slice in, delivery files out. It knows no ledger, no Spark and no stage."""
