"""`make up`: starts an environment, or restarts the existing one with its data; `make down` stops it."""

from __future__ import annotations

import os
import sys
import time

from demo.places import FOLDER, USER, DemoError, Places, existing_places, new_places, options
from demo.services import Services, orphaned_groups
from eventbridge.spark.session import shown_address


def main() -> int:
    """Return the exit code: 0 once the environment runs, 1 with an error message."""
    began = time.monotonic()
    try:
        if orphaned_groups():
            raise DemoError("An environment is already running. Stop it with `make down`.")
        chosen = options(os.environ)
        places = existing_places(FOLDER, chosen)
        again = "" if places is None else f" again, with the data in {FOLDER.name}"
        places = places or new_places(FOLDER, **chosen)  # type: ignore[arg-type]
        print(f"Starting Airflow, Spark Connect and the receiver{again} ...", flush=True)  # noqa: T201
        Services(places).start()
    except DemoError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    except KeyboardInterrupt:
        print("Interrupted; all services have ended.", file=sys.stderr)  # noqa: T201
        return 130
    print(summary(places, time.monotonic() - began))  # noqa: T201
    return 0


def summary(places: Places, seconds: float) -> str:
    """Return the addresses of the environment, and how long it took to start."""
    return (
        f"Started in {seconds:.0f} s.\n"
        f"  Airflow   {places.url}  user {USER}  password {places.password}\n"
        f"  page      {places.url}/plugin/eventbridge\n"
        f"  Spark     {shown_address(places.spark_url)}, token in {places.folder.name}/settings.sh\n"
        f"  rules     {places.rules_folder}, a copy of include/rules that you can edit\n"
        f"  logs      {places.logs}\n"
        f"`source {places.folder.name}/settings.sh` makes the command `eventbridge` use it.\n"
        "`make down` stops it and keeps its data; `make clean-up` removes the data."
    )


if __name__ == "__main__":
    sys.exit(main())
