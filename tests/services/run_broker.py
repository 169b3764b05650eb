"""Runs a broker for the demo until SIGTERM. The arguments are its type, its folder and its ports."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Final

from services import kafka, rocketmq

#: The topic of the demo, and its partitions.
TOPIC: Final = "flights"
PARTITIONS: Final = 4


def main() -> None:
    """Run the broker, create the topic if the folder is new, and then the file `ready` in the folder."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    kind, folder, ports = sys.argv[1], Path(sys.argv[2]), [int(port) for port in sys.argv[3:]]
    made = folder / "topic-made"
    if kind == "kafka":
        with kafka.Kafka(folder, dict(zip(("open", "secure", "controller"), ports, strict=True))) as broker:
            if not made.exists():
                kafka.make_topics(broker, TOPIC, partitions=PARTITIONS)
            _wait(folder)
    else:
        named = dict(zip(("names", "broker"), ports, strict=True))
        with rocketmq.RocketMQ(folder, responses_large=True, ports=named) as server:
            if not made.exists():
                rocketmq.make_topics(server, TOPIC, partitions=PARTITIONS)
            _wait(folder)


def _wait(folder: Path) -> None:
    (folder / "topic-made").touch()
    (folder / "ready").touch()
    signal.pause()


if __name__ == "__main__":
    main()
