"""The targets of deliveries; each implements `protocol.Target` and passes the contract suite of targets."""
