"""`make test-s3`: store and target on s3proxy, no server of ours, and a batch of the size meant.

    PYTHONPATH=tests:. python -m s3proxy.deep [--only tests|batch]

The tests of `make test` run against moto, which checks no signatures and whose writes a lock of ours keeps apart.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from java_tools import ToolMissing
from s3proxy import batch
from s3proxy.server import s3proxy

from eventbridge.testing.s3 import connection_uri, make_bucket

_ROOT = Path(__file__).parents[2]
#: The contract suite asks the server itself; the others through what counts, and disturbs, their requests.
_TESTS = (
    "tests/contracts/test_store_contract.py",
    "tests/unit/store/test_store_s3.py",
    "tests/s3proxy/own_answers.py",
    "tests/stages/sending/test_s3_batches.py",
    "tests/stages/sending/test_s3_faults.py",
    "tests/stages/sending/test_s3_target.py",
    "tests/contracts/test_target_contract.py",
    "tests/spark/test_spark_s3.py",
)
#: What s3proxy does not do, and Amazon's server does: encrypt, and refuse to delete in a bucket that is not there.
_LACKING = (
    "tests/unit/store/test_store_s3.py::test_encryption_is_asked_for_with_every_write",
    "tests/unit/store/test_store_s3.py::test_a_bucket_that_is_not_there[delete]",
)
_DIRECT = "direct"


def main() -> int:
    """Return the exit code: 0 if everything held, 1 if something did not or the server cannot be had."""
    parser = argparse.ArgumentParser(prog="make test-s3", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=("all", "tests", "batch"), default="all", help="what to run")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a run that is ended takes its server along
    with tempfile.TemporaryDirectory(prefix="eventbridge-s3-") as folder:
        try:
            with s3proxy(Path(folder)) as port:
                wrong = _tests(port) if options.only != "batch" else 0
                if options.only != "tests":
                    wrong |= batch.run(port)
        except ToolMissing as missing:
            print(missing, file=sys.stderr)  # noqa: T201
            return 1
    return 1 if wrong else 0


def _tests(port: int) -> int:
    make_bucket(port, _DIRECT)
    environ = os.environ | {
        "TEST_S3_PORT": str(port),
        "TEST_S3_CONNECTION": connection_uri(port),
        "TEST_S3_BUCKET": _DIRECT,
    }
    command = [sys.executable, "-m", "pytest", "-q", "-k", "s3", *_TESTS]
    command += [f"--deselect={name}" for name in _LACKING]
    return subprocess.run(command, cwd=_ROOT, env=environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
