"""`eventbridge compile`: compile the matcher before the first event needs it."""

from __future__ import annotations

import time

from eventbridge.cli.output import JsonOption, note, print_line, show_json


def compile_matcher(as_json: JsonOption = False) -> None:
    """Compile the matcher where workers will run: up to three minutes once per installation, else a second or two.

    Run it when you build an image; otherwise the first events wait for it.
    """
    from eventbridge.matching.scan.progress import telling_progress
    from eventbridge.routing.warm_up import compile_ahead

    begun = time.perf_counter()
    with telling_progress(note):
        compile_ahead()
    seconds = round(time.perf_counter() - begun, 1)
    if as_json:
        show_json({"seconds": seconds})
    else:
        print_line(f"Compiled the matcher ({seconds} s).")
