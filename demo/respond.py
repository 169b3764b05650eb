"""`python -m demo.respond crew 503`: makes the receiver respond with 503 at /scripted/crew from now on."""

from __future__ import annotations

import os
import sys

import httpx

from demo.config import RECEIVER


def main(arguments: list[str]) -> int:
    """Return the exit code: 0 if the receiver has the status, 1 with an error message."""
    if len(arguments) != 2 or RECEIVER not in os.environ:
        print("Usage, after `source .demo/settings.sh`: python -m demo.respond NAME STATUS", file=sys.stderr)  # noqa: T201
        return 1
    name, status = arguments
    try:
        response = httpx.post(f"{os.environ[RECEIVER]}/script/{status}/{name}")
    except httpx.HTTPError as error:
        print(f"The receiver does not respond ({error}). `make up` starts it.", file=sys.stderr)  # noqa: T201
        return 1
    if not response.is_success:
        print(f"{status!r} is not an HTTP status. Use one such as 503 or 200.", file=sys.stderr)  # noqa: T201
        return 1
    print(f"{name} responds with {status} from now on.")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
