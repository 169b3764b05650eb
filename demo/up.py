"""`make up`: starts the environment, or starts it again with its data, and leaves it running until `make down`."""

from __future__ import annotations

import os
import sys
import time

from demo.places import FOLDER, USER, DemoError, Places, fresh, kept, options
from demo.services import Services, orphaned_groups
from eventbridge.spark.channel import without_token


def main() -> int:
    """Return the exit code: 0 once the environment runs, 1 with one line about what is in the way."""
    began = time.monotonic()
    try:
        if orphaned_groups():
            raise DemoError("An environment is running already: `make down` ends it.")
        chosen = options(os.environ)
        places = kept(FOLDER, chosen)
        again = "" if places is None else f" again, with the data in {FOLDER.name}"
        places = places or fresh(FOLDER, **chosen)  # type: ignore[arg-type]
        print(f"Starting Airflow, Spark Connect and the receiver{again} ...", flush=True)  # noqa: T201
        Services(places).start()
    except DemoError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    except KeyboardInterrupt:
        print("Interrupted; everything that was started is ended.", file=sys.stderr)  # noqa: T201
        return 130
    print(told(places, time.monotonic() - began))  # noqa: T201
    return 0


def told(places: Places, seconds: float) -> str:
    """Say where the environment is, and how long it took to start."""
    return (
        f"Up after {seconds:.0f} s.\n"
        f"  Airflow   {places.url}  user {USER}  password {places.password}\n"
        f"  page      {places.url}/plugin/eventbridge\n"
        f"  Spark     {without_token(places.spark_url)}, token in {places.folder.name}/settings.sh\n"
        f"  rules     {places.rules_folder}, a copy of include/rules that is yours to edit\n"
        f"  logs      {places.logs}\n"
        f"`source {places.folder.name}/settings.sh` shows it to the command line eventbridge.\n"
        "`make down` ends it and keeps its data; `make clean-up` removes them."
    )


if __name__ == "__main__":
    sys.exit(main())
