"""Serves agents by the Model Context Protocol: tools that read an installation by calling the API in this process."""
