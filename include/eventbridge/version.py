"""Holds the distribution's name and version, in a separate module so that reading them imports nothing else."""

from __future__ import annotations

#: The name for pip; `eventbridge`, the import name, belongs to another project on public indexes.
DISTRIBUTION = "eventbridge-airflow"

__version__ = "0.3.0"


def wheel_file() -> str:
    """Return the name of the wheel file that `make wheel` builds of this version."""
    return f"{DISTRIBUTION.replace('-', '_')}-{__version__}-py3-none-any.whl"
