"""`make bench-telemetry`: the cost of OpenTelemetry at 1 % sampling for a batch, compared with none.

Each pair routes and pushes two equal batches to a file, one of them with traces to a local collector that accepts
everything; which batch is first alternates. Then it commits them, which creates the spans of deliveries. Each batch
runs in a separate process, forked after importing OpenTelemetry; the cost of that import is reported separately.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from benchmarks.bench_site import Site, measured, push_of, settle_before_commit, site
from rich.console import Console
from rich.table import Table

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.route.stage import route
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime
from eventbridge.telemetry.selection import telemetry_from_environment

#: The maximum extra cost of route and push with traces at 1 %, as the median of the pairs.
GOAL = 0.05
_SIZE = 1024
#: The modules that telemetry imports when a process begins to send.
_IMPORTED = ("eventbridge.telemetry.open_telemetry", "requests")
_IMPORT = f"import time; t = time.process_time(); import {', '.join(_IMPORTED)}; print(time.process_time() - t)"


class _Collector(BaseHTTPRequestHandler):
    """Takes what is posted, and says so."""

    def do_POST(self) -> None:
        """Read and respond with 200."""
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def main() -> int:
    """Measure the pairs and print the table; 1 if the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000, help="number of events in each batch (default: 100000)")
    parser.add_argument("--pairs", type=int, default=5, help="number of pairs (default: 5)")
    options = parser.parse_args()
    for name in _IMPORTED:
        importlib.import_module(name)
    with _collector() as url:
        on = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": "0.01",
        }
        found: list[tuple[dict[str, float], dict[str, float]]] = []
        for number in range(options.pairs):
            order = (on, {}) if number % 2 else ({}, on)
            costs = [_batch(options.events, each) for each in order]
            found.append((costs[order.index({})], costs[order.index(on)]))
    return 0 if _print_results(found, options.events) else 1


@contextmanager
def _collector() -> Iterator[str]:
    """Run a collector in a process of its own, so that it costs the measured ones nothing."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Collector)
    child = os.fork()
    if not child:
        server.serve_forever()
    server.server_close()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)


def _batch(events: int, environ: dict[str, str]) -> dict[str, float]:
    """Return the CPU seconds that route, push and commit of a batch take."""
    with site() as installation:
        installation.write_rules(
            {"rule": {"target": {"type": "file", "path": str(installation.folder / "lines.jsonl")}}}
        )
        measured(partial(installation.publish, events, _SIZE))
        batch_id = measured(installation.buffered).result
        routed = measured(partial(_route, installation, batch_id, environ))
        pushed = measured(partial(_push, installation, batch_id, routed.result, environ))
        if pushed.result != events:
            raise RuntimeError(f"only {pushed.result:,} of {events:,} were delivered")
        settle_before_commit(installation, batch_id)
        committed = measured(partial(_commit, installation, batch_id, environ))
        return {"route": routed.cpu, "push": pushed.cpu, "commit": committed.cpu}


def _open(installation: Site, environ: dict[str, str]) -> Runtime:
    os.environ.update(environ)  # the exporter reads its variables itself
    named = installation.environ()
    telemetry = telemetry_from_environment(environ)
    return open_runtime(Settings.from_mapping(named), connections_from_environment(named), telemetry=telemetry)


def _route(installation: Site, batch_id: str, environ: dict[str, str]) -> list[int]:
    with closing(_open(installation, environ)) as runtime:
        return route(runtime, batch_id, InProcessRouter(runtime.store))


def _push(installation: Site, batch_id: str, chunks: list[int], environ: dict[str, str]) -> int:
    with closing(_open(installation, environ)) as runtime:
        return push_of(runtime, batch_id, chunks)


def _commit(installation: Site, batch_id: str, environ: dict[str, str]) -> bool:
    with closing(_open(installation, environ)) as runtime:
        return commit(runtime, batch_id)


def _print_results(found: list[tuple[dict[str, float], dict[str, float]]], events: int) -> bool:
    table = Table(title=f"{len(found)} pairs of batches of {events:,} events, traces of 1 % of the deliveries")
    for title in ("stages", "CPU s off", "CPU s on", "more, median", "least", "most"):
        table.add_column(title, justify="left" if title == "stages" else "right")
    ratios: dict[str, float] = {}
    for name, stages in {"route and push": ("route", "push"), "commit": ("commit",)}.items():
        pairs = [(sum(off[each] for each in stages), sum(on[each] for each in stages)) for off, on in found]
        more = [on / off - 1 for off, on in pairs]
        ratios[name] = statistics.median(more)
        medians = [statistics.median(values) for values in zip(*pairs, strict=True)]
        shown = [f"{each:+.1%}" for each in (ratios[name], min(more), max(more))]
        table.add_row(name, *(f"{each:.2f}" for each in medians), *shown)
    Console(width=120).print(table)
    imported = subprocess.run([sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=True).stdout
    kept = ratios["route and push"] <= GOAL
    print(f"importing OpenTelemetry takes a process {float(imported):.2f} s of CPU")  # noqa: T201
    print(f"goal: route and push at most {GOAL:+.0%}: {'met' if kept else 'MISSED'}")  # noqa: T201
    return kept


if __name__ == "__main__":
    sys.exit(main())
