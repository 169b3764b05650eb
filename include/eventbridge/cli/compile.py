"""`eventbridge compile`: compile the matcher before the first event needs it."""

from __future__ import annotations

import time

from eventbridge.cli.output import JsonOption, say, show_json


def compile_matcher(as_json: JsonOption = False) -> None:
    """Compile the matcher now, where workers will run: about 40 s once per installation, else a second or two.

    Belongs into the build of an image; without it the first events wait for it.
    """
    from eventbridge.routing.warm_up import compile_ahead

    begun = time.perf_counter()
    compile_ahead()
    seconds = round(time.perf_counter() - begun, 1)
    if as_json:
        show_json({"seconds": seconds})
    else:
        say(f"The matcher is compiled ({seconds} s).")
