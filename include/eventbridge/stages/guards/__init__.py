"""Stops a runner whose bus or ledger is not the one that its offsets count on."""
