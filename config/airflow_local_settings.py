"""Airflow's local settings: the cluster policy of the pushes, and what tasks import, loaded before they fork."""

from __future__ import annotations

import sys

from eventbridge.orchestrate.policy import place_push as task_instance_mutation_hook
from eventbridge.orchestrate.preload import preload

__all__ = ["task_instance_mutation_hook"]

# Only processes whose children are tasks: the others would pay for what they never use.
if sys.argv[1:2] in (["scheduler"], ["celery"]):
    preload()
