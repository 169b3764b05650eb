"""`make clean-up`: removes the environment of `make up` with all its data, and the files of the last `make demo`."""

from __future__ import annotations

import sys

from demo.config import FOLDER, RUN_FOLDER, DemoError, remove
from demo.services import orphaned_groups


def main() -> int:
    """Return the exit code: 0 if everything is removed, 1 with a message if an environment still runs."""
    try:
        for folder in (FOLDER, RUN_FOLDER):
            if orphaned_groups(folder):
                raise DemoError(f"The environment in {folder.name} is running. Stop it with `make down`.")
        removed = [folder.name for folder in (FOLDER, RUN_FOLDER) if remove(folder)]
    except DemoError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    print(f"Removed {' and '.join(removed)}." if removed else "Nothing to remove.")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
