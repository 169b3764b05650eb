"""Checks an hour of events and deliveries with Great Expectations, which is imported only here."""
