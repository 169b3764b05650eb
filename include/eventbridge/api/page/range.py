"""Reads the time range that a page shows, and keeps it in the links of the page."""
