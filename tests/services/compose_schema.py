"""The JSON schema of the compose specification, from the package docker-compose."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Final

from java_tools import ToolMissing
from services.cache import CACHE

HERE: Final = Path(__file__).parent
FETCHED: Final = CACHE / "compose-spec-1.29.2.json"


def compose_schema() -> dict[str, Any]:
    """Return the schema, downloaded by pip if it is missing; raises ToolMissing."""
    if not FETCHED.exists():
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            _fetch(Path(folder))
    schema: dict[str, Any] = json.loads(FETCHED.read_text())
    return schema


def _fetch(folder: Path) -> None:
    options = ["--no-deps", "--require-hashes", "-r", str(HERE / "compose_schema.txt"), "-d", str(folder)]
    for command in (
        [sys.executable, "-m", "venv", str(folder / "installer")],
        [str(folder / "installer" / "bin" / "pip"), "download", "-q", *options],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ToolMissing(f"The compose specification cannot be fetched: {done.stderr.strip()[-300:]}")
    (wheel,) = folder.glob("*.whl")
    beside = FETCHED.with_suffix(".new")
    with zipfile.ZipFile(wheel) as archive:
        beside.write_bytes(archive.read("compose/config/compose_spec.json"))
    beside.replace(FETCHED)
