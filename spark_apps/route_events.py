"""The Spark application `route_events`; see eventbridge.spark.apps.route_events."""

from __future__ import annotations

import sys

from eventbridge.spark.apps.route_events import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
