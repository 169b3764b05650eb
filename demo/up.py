"""`make up`: starts an environment, or restarts the existing one with its data; `make down` stops it."""

from __future__ import annotations

import os
import sys
import time

from demo.config import FOLDER, USER, DemoConfig, DemoError, existing_config, new_config, options
from demo.services import Services, orphaned_groups
from eventbridge.spark.session import redact_address


def main() -> int:
    """Return the exit code: 0 once the environment runs, 1 with an error message."""
    began = time.monotonic()
    try:
        if orphaned_groups():
            raise DemoError("An environment is already running. Stop it with `make down`.")
        chosen = options(os.environ)
        config = existing_config(FOLDER, chosen)
        again = "" if config is None else f" again, with the data in {FOLDER.name}"
        config = config or new_config(FOLDER, **chosen)  # type: ignore[arg-type]
        print(f"Starting Airflow, Spark Connect and the receiver{again} ...", flush=True)  # noqa: T201
        Services(config).start()
    except DemoError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    except KeyboardInterrupt:
        print("Interrupted; all services have ended.", file=sys.stderr)  # noqa: T201
        return 130
    print(summary(config, time.monotonic() - began))  # noqa: T201
    return 0


def summary(config: DemoConfig, seconds: float) -> str:
    """Return the addresses of the environment, and how long it took to start."""
    return (
        f"Started in {seconds:.0f} s.\n"
        f"  Airflow   {config.url}  user {USER}  password {config.password}\n"
        f"  page      {config.url}/plugin/eventbridge\n"
        f"  Spark     {redact_address(config.spark_url)}, token in {config.folder.name}/settings.sh\n"
        f"  rules     {config.rules_folder}, a copy of include/rules that you can edit\n"
        f"  logs      {config.logs}\n"
        f"`source {config.folder.name}/settings.sh` makes the command `eventbridge` use this environment.\n"
        "`make down` stops the environment and keeps its data; `make clean-up` removes the data."
    )


if __name__ == "__main__":
    sys.exit(main())
