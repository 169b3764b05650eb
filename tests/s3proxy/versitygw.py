"""versitygw: a second S3 server that is not ours, in Go; its data lies in a folder, and it checks signatures.

`go install` builds it in two minutes into `.services/`, of the version whose sum Go's checksum database has.

It keeps an object's checksum in attributes of the object's file. Its option `--sidecar`, for file systems without
them, keeps it in another file instead: a reader may then get, while the object is replaced, the content of one
version with the checksum of the other, and our store refuses that response. So it is run without.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from demo.ports import reserve
from demo.s3_server import ACCESS_KEY, SECRET_KEY
from java_tools import ToolMissing, require
from s3proxy.server import running
from services.cache import CACHE

VERSION: Final = "v1.8.0"
FETCHED: Final = CACHE / f"versitygw-{VERSION}"
PROGRAM: Final = FETCHED / "versitygw"


@contextmanager
def versitygw(folder: Path) -> Iterator[int]:
    """Run it for the block, on 127.0.0.1 with its data in `folder`, for the keys of the tests; yields its port.

    Raises ToolMissing where it cannot be had, or does not start.
    """
    program = fetch_versitygw()
    data = folder / "data"
    data.mkdir(parents=True)
    try:
        os.setxattr(data, "user.eventbridge", b"1")
    except OSError as error:
        raise ToolMissing(f"{folder} has no attributes of files: set TMPDIR to a file system that has") from error
    port = reserve()
    command = [str(program), "--port", f"127.0.0.1:{port}", "--quiet", "posix", str(data)]
    keys = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
    with running("versitygw", command, port, folder, os.environ | keys):
        yield port


def fetch_versitygw() -> Path:
    """Return the program, which Go builds if it is not there; raises ToolMissing."""
    if not PROGRAM.exists():
        require("go", "Go, 1.21 or later,", "golang")  # an older one than it wants fetches that
        environ = os.environ | {"GOBIN": str(FETCHED), "GOFLAGS": "-trimpath"}
        command = ["go", "install", f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ToolMissing(f"versitygw cannot be built: {done.stderr.strip()[-500:]}")
    return PROGRAM
