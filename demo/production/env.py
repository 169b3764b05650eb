"""`make env`: writes `.env` for docker-compose.yaml, with a random value for each secret. Never overwrites it."""

from __future__ import annotations

import base64
import os
import re
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

# Only the standard library: a container host has no EventBridge environment.
_ROOT: Final = Path(__file__).resolve().parents[2]
EXAMPLE: Final = _ROOT / ".env.example"
FILE: Final = _ROOT / ".env"


def _password() -> str:
    return secrets.token_hex(16)  # only letters and digits, as it is part of URLs


#: The generator of each secret, by the name of its variable.
SECRETS: Final[dict[str, Callable[[], str]]] = {
    "AIRFLOW_PASSWORD": _password,
    "POSTGRES_PASSWORD": _password,
    "LEDGER_PASSWORD": _password,
    "VALKEY_PASSWORD": _password,
    "S3_ACCESS_KEY": _password,
    "S3_SECRET_KEY": _password,
    "SPARK_TOKEN": lambda: secrets.token_hex(32),
    "SPARK_SECRET": lambda: secrets.token_hex(32),
    "JWT_SECRET": lambda: secrets.token_hex(32),
    "FERNET_KEY": lambda: base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
}


def random_secrets() -> dict[str, str]:
    """Return a new value for each secret."""
    return {name: make() for name, make in SECRETS.items()}


def write(example: Path = EXAMPLE, file: Path = FILE) -> None:
    """Write the file from the example, readable only by its owner; raises FileExistsError if it exists."""
    text = example.read_text()
    for name, value in random_secrets().items():
        text = re.sub(rf"(?m)^{name}=$", f"{name}={value}", text)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as output:
        output.write(text)


def main() -> int:
    """Return the exit code: 0 if the file is written, 1 if it exists."""
    try:
        write()
    except FileExistsError:
        sys.stderr.write(f"{FILE.name} already exists. It was not changed, as its passwords are in use.\n")
        return 1
    sys.stdout.write(f"Wrote {FILE.name} with random passwords. Airflow's user is admin.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
