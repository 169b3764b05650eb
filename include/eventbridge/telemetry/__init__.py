"""Sends the traces and metrics of a process with OpenTelemetry; off by default."""
