"""Gives each delivery of a batch its status, writes dead letters, and makes retries pending."""
