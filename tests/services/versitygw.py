"""versitygw: an S3 server that is not ours, with its data in a folder; only `make test-s3` starts it.

Built by Go, from the version that was tried, into `.services/`; Go's checksum database vouches for its modules.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from demo.ports import reserve
from java_tools import ToolMissing, require
from services.cache import CACHE, listens

from eventbridge.testing.s3 import ACCESS_KEY, SECRET_KEY

VERSION: Final = "1.8.0"
PROGRAM: Final = CACHE / f"versitygw-{VERSION}" / "versitygw"

_MODULE: Final = "github.com/versity/versitygw/cmd/versitygw"
_START_SECONDS: Final = 60.0
_END_SECONDS: Final = 10.0


@contextmanager
def versitygw(folder: Path) -> Iterator[int]:
    """Run it for the block, on 127.0.0.1 with its data in `folder`, for the keys of the tests; yields its port.

    Raises ToolMissing where it cannot be had, or does not start.
    """
    program = fetch_versitygw()
    data, beside = folder / "versitygw" / "data", folder / "versitygw" / "about"
    data.mkdir(parents=True)
    beside.mkdir()
    port = reserve()
    command = [str(program), "--port", f"127.0.0.1:{port}", "--region", "us-east-1", "--quiet", "--keep-alive"]
    command += ["posix", "--sidecar", str(beside), str(data)]  # not every file system keeps what is said of a file
    environ = os.environ | {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
    log_file = folder / "versitygw.log"
    with log_file.open("wb") as log:
        process = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        end = time.monotonic() + _START_SECONDS
        while not listens(port):
            if process.poll() is not None or time.monotonic() > end:
                raise ToolMissing(f"versitygw does not start: {log_file.read_text(errors='replace')[-500:]}")
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def fetch_versitygw() -> Path:
    """Return the program, which Go builds in two minutes if it is not there; raises ToolMissing."""
    if not PROGRAM.exists():
        require("go", "Go", "golang-go")
        environ = os.environ | {"GOBIN": str(PROGRAM.parent), "GOFLAGS": "-trimpath"}
        command = ["go", "install", f"{_MODULE}@v{VERSION}"]
        built = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        if built.returncode:
            raise ToolMissing(f"Go cannot build versitygw: {built.stderr.strip()[-300:]} Connect to the network.")
    return PROGRAM
