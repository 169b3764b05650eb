"""spark-submit on this machine, for the tests of SubmitRouter."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from eventbridge.errors import SparkError
from eventbridge.spark.child_guard import start_tethered
from eventbridge.spark.environment import SECRETS_FILE, require_java, spark_environment, submit_command, write_secrets
from eventbridge.spark.failure import first_error_of_log


class LocalSubmit:
    """Submits to a Spark on this machine; leaves files and logs in `folder`."""

    def __init__(self, folder: Path, master: str = "local[2]", memory: str = "1g") -> None:
        self._folder = folder
        self._master = master
        self._memory = memory

    def __call__(self, application: str, arguments: Sequence[str]) -> None:
        """Run the application; raises SparkError with the first Python error of its log."""
        require_java()
        self._folder.mkdir(parents=True, exist_ok=True)
        confs: Mapping[str, str] = {"spark.log.level": "WARN"}
        command = [*submit_command(self._master, self._folder, confs, self._memory), application, *arguments]
        secrets = self._folder / "worker-secrets.json"
        write_secrets(os.environ, secrets)
        known = {SECRETS_FILE: str(secrets)}
        with tempfile.TemporaryFile(dir=self._folder) as log:
            code = _run_group(command, known, stdout=log, stderr=subprocess.STDOUT, cwd=self._folder)
            if code != 0:
                log.seek(0)
                raise SparkError(first_error_of_log(log.read().decode(errors="replace")))


def _run_group(command: Sequence[str], known: Mapping[str, str], **options: Any) -> int:
    """Run a command in a process group of its own and end the group with us, whatever ends us."""
    with start_tethered(command, env=spark_environment(os.environ) | known, **options) as process:
        try:
            return process.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
