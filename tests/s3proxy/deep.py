"""`make test-s3`: store and target on s3proxy and on versitygw, no servers of ours, and a batch of the size meant.

    PYTHONPATH=tests:. python -m s3proxy.deep [--server s3proxy|versitygw] [--only tests|batch]

The tests of `make test` run against moto, which checks no signatures and whose writes a lock of ours keeps apart.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from demo.s3_server import connection_uri, make_bucket
from java_tools import ToolMissing
from s3proxy import batch
from s3proxy.server import s3proxy
from s3proxy.versitygw import versitygw

_ROOT = Path(__file__).parents[2]
#: The contract suite asks the server itself; the others through what counts, and disturbs, their requests.
_TESTS = (
    "tests/contracts/test_store_contract.py",
    "tests/unit/store/test_store_s3.py",
    "tests/s3proxy/own_responses.py",
    "tests/pipeline/sending/test_s3_batches.py",
    "tests/pipeline/sending/test_s3_faults.py",
    "tests/pipeline/sending/test_s3_target.py",
    "tests/contracts/test_target_contract.py",
    "tests/spark/test_spark_s3.py",
)
#: The servers, what is asked of each, and tests of what Amazon's does and it does not.
#: s3proxy does not encrypt, and does not refuse to delete in a bucket that is not there.
_SERVERS: dict[str, tuple[Callable[[Path], AbstractContextManager[int]], Sequence[str]]] = {
    "s3proxy": (
        s3proxy,
        (
            "tests/unit/store/test_store_s3.py::test_encryption_is_asked_for_with_every_write",
            "tests/unit/store/test_store_s3.py::test_a_bucket_that_is_not_there[delete]",
        ),
    ),
    "versitygw": (versitygw, ()),
}
_DIRECT = "direct"


def main() -> int:
    """Return the exit code: 0 if everything held, 1 if something did not or the server cannot be had."""
    parser = argparse.ArgumentParser(prog="make test-s3", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--server", choices=tuple(_SERVERS), action="append", help="on which server (default: on both)")
    parser.add_argument("--only", choices=("all", "tests", "batch"), default="all", help="what to run")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a run that is ended takes its server along
    return max([_on(name, options.only) for name in options.server or _SERVERS])


def _on(name: str, only: str) -> int:
    run, lacking = _SERVERS[name]
    with tempfile.TemporaryDirectory(prefix="eventbridge-s3-") as folder:
        try:
            with run(Path(folder)) as port:
                print(f"\n{name}:", flush=True)  # noqa: T201
                wrong = _tests(port, lacking) if only != "batch" else 0
                if only != "tests":
                    wrong |= batch.run(port)
        except ToolMissing as missing:
            print(missing, file=sys.stderr)  # noqa: T201
            return 1
    return 1 if wrong else 0


def _tests(port: int, lacking: Sequence[str]) -> int:
    make_bucket(port, _DIRECT)
    environ = os.environ | {
        "TEST_S3_PORT": str(port),
        "TEST_S3_CONNECTION": connection_uri(port),
        "TEST_S3_BUCKET": _DIRECT,
    }
    command = [sys.executable, "-m", "pytest", "-q", "-k", "s3", *_TESTS]
    command += [f"--deselect={name}" for name in lacking]
    return subprocess.run(command, cwd=_ROOT, env=environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
