"""Telemetry of a process: traces and metrics with OpenTelemetry, off by default."""
