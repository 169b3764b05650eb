"""Read models: what people ask about an installation, from ledger, store and buses; nothing is changed."""
