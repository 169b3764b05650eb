"""The runner of documentation pages itself: it finds what is wrong on a page, and lets what is right go."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs.session import as_pattern, run_page, steps_of

PAGE = """
```sh
mkdir a
cat > a/file <<'END'
one
two
END
```

```console
$ cat a/file
one
...
$ cd a; pwd
.../page/a
$ ls file nothing
ls: ...
file
$ echo $?
2
$ printf '%s\\n' x \\
>   y
x
y
```

```sh elsewhere
exit 1
```
"""


def test_a_page_that_is_right(tmp_path: Path) -> None:
    """Commands share one shell; here-documents, continuations, elisions and expected failures work."""
    assert run_page(PAGE, tmp_path) == []


@pytest.mark.parametrize(
    ("right", "wrong", "found"),
    [
        ("one\n...", "one\n", "line 11: $ cat a/file\nprinted\none\ntwo"),
        ("2\n", "1\n", "line 19: $ echo $?\nprinted\n2"),
        ("mkdir a", "mkdir a/b", "ended with 1"),
        ("$ echo $?\n2\n", "", "line 16: $ ls file nothing\nended with 2"),
        ("x\ny\n", "x\ny\nz\n", "printed\nx\ny"),
        ("$ cd a; pwd", "$ exit", "did not end"),
    ],
)
def test_a_page_that_is_wrong(right: str, wrong: str, found: str, tmp_path: Path) -> None:
    """Other output, another exit code and an unexpected failure are reported with line, command and both texts."""
    assert right in PAGE

    assert found in "\n".join(run_page(PAGE.replace(right, wrong), tmp_path))


def test_a_command_that_fails_within_a_block_fails_the_block(tmp_path: Path) -> None:
    """The exit code of the first command counts, although the last one succeeds."""
    wrong = run_page("```sh\nls nothing\ntrue\n```\n", tmp_path)

    assert len(wrong) == 1
    assert "ended with 2" in wrong[0]


def test_a_command_whose_failure_a_block_handles_is_no_failure(tmp_path: Path) -> None:
    """`ls nothing || true` succeeds."""
    assert run_page("```sh\nls nothing || true\nif ls nothing; then false; fi\n```\n", tmp_path) == []


def test_blocks_that_another_test_runs_are_left_out() -> None:
    """A second word behind the language keeps a block from being run."""
    assert [step.command.strip() for step in steps_of(PAGE) if "exit 1" in step.command] == []


@pytest.mark.parametrize(
    ("expected", "printed", "right"),
    [
        ("a ... c\n", "a b c\n", True),
        ("a ... c\n", "a b\nc\n", False),
        ("...\nb\n", "x\ny\nb\n", True),
        ("...\nb\n", "b\n", True),
        ("a.c\n", "abc\n", False),
        ("", "", True),
        ("", "a\n", False),
    ],
)
def test_elisions(expected: str, printed: str, right: bool) -> None:
    """`...` within a line is any text of that line, alone it is any lines, and everything else is literal."""
    assert bool(as_pattern(expected).fullmatch(printed)) == right
