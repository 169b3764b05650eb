"""`make down`: stops the environment of `make up` and keeps its data for the next `make up`."""

from __future__ import annotations

import sys

from demo.config import FOLDER, RUN_FOLDER
from demo.services import orphaned_groups, stop_groups


def main() -> int:
    """Return the exit code: 0, also if nothing was running."""
    # A demo that was killed leaves services running, too.
    groups = orphaned_groups(RUN_FOLDER) | orphaned_groups(FOLDER)
    stop_groups(groups)
    print(f"Stopped {', '.join(groups)}." if groups else "Nothing was running.")  # noqa: T201
    if FOLDER.exists():
        print(  # noqa: T201
            f"{FOLDER.name} keeps the ledger, archive, rules, Airflow's database and the password. `make up` continues "
            "with them; `make clean-up` removes them."
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
