"""Sends the traces and metrics of a process with OpenTelemetry. It is off by default."""
