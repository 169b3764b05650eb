"""Gives each delivery of a batch its verdict, writes dead letters, and makes retries pending."""
