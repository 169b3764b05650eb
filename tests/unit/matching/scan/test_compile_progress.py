"""What is said while functions are compiled."""

from __future__ import annotations

import importlib.util
import threading
from pathlib import Path

from eventbridge.matching.scan.compiled import compiled
from eventbridge.matching.scan.progress import PROGRESS, CompileProgress, sentence, telling_progress


def test_compiling_is_reported_and_a_cached_function_is_not(tmp_path: Path) -> None:
    """A new function compiles and counts among all; run once more it says nothing."""
    (tmp_path / "fresh_function.py").write_text("def added(a, b):\n    return a + b\n")
    spec = importlib.util.spec_from_file_location("fresh_function", tmp_path / "fresh_function.py")
    assert spec is not None
    assert spec.loader is not None
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    before = PROGRESS.functions
    added = compiled(fresh.added)
    said: list[str] = []
    with telling_progress(said.append):
        assert added(1, 2) == 3
    with telling_progress(said.append):
        assert added(1, 2) == 3

    assert PROGRESS.functions == before + 1
    assert said[-1] == "the compiled matcher is stored on disk (functions: 1)"
    assert said.count(said[-1]) == 1


def test_a_compilation_in_progress_is_reported() -> None:
    """As soon as the first function is compiled, with how many there are."""
    progress = CompileProgress(functions=3)
    reported = threading.Event()
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        reported.set()

    with telling_progress(say, progress):
        progress.compiled.add("one")
        assert reported.wait(30)

    assert said[0].startswith("compiling the matcher, once for each installation: 1 of 3 functions after ")
    assert sentence(1, 3, 12.4).endswith("1 of 3 functions after 12 s")
