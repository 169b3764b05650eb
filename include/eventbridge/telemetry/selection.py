"""Selects the telemetry of a process: none, unless the OTEL_* variables name a collector."""

from __future__ import annotations

from collections.abc import Mapping

from eventbridge.errors import SettingsError
from eventbridge.telemetry.protocol import NO_TELEMETRY, Telemetry

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_{}_ENDPOINT")
_RATIOS = ("traceidratio", "parentbased_traceidratio")


def is_exported(signal: str, environ: Mapping[str, str]) -> bool:
    """Return whether a signal, `traces` or `metrics`, is sent: it has an endpoint and is not disabled."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if environ.get(f"OTEL_{signal.upper()}_EXPORTER", "otlp").strip() != "otlp":
        return False
    return any(environ.get(name.format(signal.upper()), "").strip() for name in _ENDPOINTS)


def telemetry_from_environment(environ: Mapping[str, str]) -> Telemetry:
    """Return the telemetry of a process. If traces are not sent, OpenTelemetry is not imported.

    Raises SettingsError if the argument of the sampler is not a ratio, and ModuleNotFoundError if the `otel` extra is
    not installed.
    """
    if not is_exported("traces", environ):
        return NO_TELEMETRY
    ratio = _ratio(environ)
    from eventbridge.telemetry.open_telemetry import OpenTelemetry

    return OpenTelemetry(ratio)


def _ratio(environ: Mapping[str, str]) -> float:
    sampler = environ.get("OTEL_TRACES_SAMPLER", "").strip()
    if sampler.endswith("always_off"):
        return 0.0
    if sampler not in _RATIOS:
        return 1.0
    text = environ.get("OTEL_TRACES_SAMPLER_ARG", "1.0").strip()
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0.0 <= ratio <= 1.0:
        raise SettingsError(f"OTEL_TRACES_SAMPLER_ARG is {text!r}. Write a ratio from 0 to 1, such as 0.01")
    return ratio
