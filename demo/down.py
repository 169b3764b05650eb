"""`make down`: ends the environment that `make up` left running and keeps its data for the next `make up`."""

from __future__ import annotations

import sys

from demo.places import FOLDER, RUN_FOLDER
from demo.services import orphaned_groups, stop_groups


def main() -> int:
    """Return the exit code: 0, also if nothing ran."""
    groups = orphaned_groups(RUN_FOLDER) | orphaned_groups(
        FOLDER
    )  # a demo that was killed leaves services running, too
    stop_groups(groups)
    print(f"Ended {', '.join(groups)}." if groups else "Nothing was running.")  # noqa: T201
    if FOLDER.exists():
        print(  # noqa: T201
            f"Kept: ledger, archive, rules, Airflow's database and the password, in {FOLDER.name}. `make up` continues "
            "with them, `make clean-up` removes them."
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
