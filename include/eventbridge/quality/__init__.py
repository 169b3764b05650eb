"""Checks an hour of events, deliveries and outcomes with Great Expectations, which is imported only here."""
