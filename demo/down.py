"""`make down`: ends the environment that `make up` left running, or that a demo left behind; keeps its files."""

from __future__ import annotations

import sys

from demo.services import left_behind, stop_groups


def main() -> int:
    """Return the exit code: 0, also if nothing ran."""
    groups = left_behind()
    stop_groups(groups)
    print(f"Ended {', '.join(groups)}." if groups else "Nothing was running.")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
