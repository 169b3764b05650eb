"""Renders the page for operators on the server, so that it is readable without JavaScript."""
