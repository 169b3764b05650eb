"""Telemetry of a process: traces and metrics by OpenTelemetry, off by default."""
