"""What everybody passes on: frozen values that know neither the ledger nor a framework."""
