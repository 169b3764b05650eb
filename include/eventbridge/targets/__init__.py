"""Targets of deliveries; each implements `protocol.Target` and passes the target contract suite."""
