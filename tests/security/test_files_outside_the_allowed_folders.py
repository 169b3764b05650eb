"""A rule author writes to files of the host: nothing is written outside of the allowed folders, nor through a link."""

from __future__ import annotations

import os
import socket
import stat
import time
import uuid
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from unit.loopback import later, now

from eventbridge.config.settings import Settings
from eventbridge.config.target_locations import TargetLocations
from eventbridge.control.check_rules import check_folder
from eventbridge.errors import SettingsError, UserError
from eventbridge.model.outcome import Response
from eventbridge.rules.address import path_error
from eventbridge.targets.file.fields import FileFields
from eventbridge.targets.file.target import FileTarget
from eventbridge.targets.open import open_target
from eventbridge.targets.protocol import Request


@pytest.fixture
def allowed(tmp_path: Path) -> Path:
    """The one folder that file targets may write below."""
    folder = tmp_path / "allowed"
    folder.mkdir()
    return folder


def delivered(path: object, *folders: Path) -> Response:
    """Return the response to one delivery to that path."""
    rule = FileFields(name="log", path=str(path))
    with closing(
        open_target("leak", rule, lambda _: pytest.fail("no connection"), now, (), TargetLocations(folders))
    ) as target:
        [(_, response)] = target.deliver([Request(0, str(uuid.uuid4()), b"{}", "application/json")], later())
    return response


def checked(path: Path, *folders: Path) -> str | None:
    """Return why the target says that it cannot write to that path."""
    rule = FileFields(name="log", path=str(path))
    with closing(
        open_target("leak", rule, lambda _: pytest.fail("no connection"), now, (), TargetLocations(folders))
    ) as target:
        assert isinstance(target, FileTarget)
        return target.check()


def everything(folder: Path) -> dict[str, bytes | None]:
    """Return what lies below a folder: files with their bytes, folders and links as None."""
    return {
        str(each.relative_to(folder)): each.read_bytes() if each.is_file() and not each.is_symlink() else None
        for each in folder.rglob("*")
    }


@pytest.mark.parametrize(
    "path",
    [
        "/etc/cron.d/job",
        "{home}/.bashrc",
        "{allowed}/../outside.jsonl",
        "{allowed}/a/../../outside.jsonl",
        "../outside.jsonl",
        "a/../../outside.jsonl",
        "{allowed}x/outside.jsonl",
        "{allowed}/.ssh/authorized_keys",
        "{allowed}/a/.hidden/log.jsonl",
        "{allowed}/.bashrc",
        ".bashrc",
        "a/.git/hooks/post-commit",
        "{allowed}",
        "{allowed}/",
        "/",
        ".",
        "..",
        "//etc/x",
        "/proc/self/mem",
        "/dev/shm/x.jsonl",
        "~/x.jsonl",
        "${{HOME}}/x.jsonl",
    ],
)
def test_a_path_outside_is_never_opened(path: str, allowed: Path, tmp_path: Path) -> None:
    """The rule file is refused, or the target is, before anything is written; and nothing is."""
    written = path.format(allowed=allowed, home=Path.home())
    before = everything(tmp_path)

    if path_error(written) is None:
        with pytest.raises(UserError, match="Target 'log' of rule 'leak'"):
            delivered(written, allowed)
    assert everything(tmp_path) == before


def test_without_an_allowed_folder_nothing_is_written(tmp_path: Path) -> None:
    """The refusal names the setting."""
    with pytest.raises(UserError, match=r"no folder is allowed for file targets.*EVENTBRIDGE_FILE_TARGET_FOLDERS"):
        delivered(tmp_path / "x.jsonl")


@pytest.mark.parametrize("kind", ["file", "dangling", "folder", "folder above", "relative", "to itself"])
def test_a_link_is_not_followed(kind: str, allowed: Path, tmp_path: Path) -> None:
    """A link below the allowed folder is refused wherever it stands and wherever it leads, even inside."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("untouched")
    path = allowed / "x.jsonl"
    if kind == "file":
        path.symlink_to(outside / "secret")
    elif kind == "dangling":
        path.symlink_to(outside / "new")
    elif kind == "relative":
        path.symlink_to("../outside/secret")
    elif kind == "to itself":
        (allowed / "real").mkdir()
        (allowed / "link").symlink_to(allowed / "real")
        path = allowed / "link" / "x.jsonl"
    else:
        (allowed / "link").symlink_to(outside)
        path = allowed / "link" / ("x.jsonl" if kind == "folder" else "a/b/x.jsonl")
    before = everything(tmp_path)

    response = delivered(path, allowed)

    assert (response.accepted, response.error_class) == (False, "FileError")
    assert "is a link, but file targets follow no links. Name the link's target" in str(response.error)
    assert everything(tmp_path) == before


def test_a_link_that_is_made_while_a_target_is_open_is_not_followed(allowed: Path, tmp_path: Path) -> None:
    """A folder that is exchanged for a link between two deliveries gets no line of the second."""
    outside = tmp_path / "outside"
    outside.mkdir()
    rule = FileFields(name="log", path="days/log.jsonl")
    with closing(
        open_target("leak", rule, lambda _: pytest.fail("no connection"), now, (), TargetLocations((allowed,)))
    ) as target:
        first, second = (Request(n, str(uuid.uuid4()), b"{}", "application/json") for n in range(2))
        [(_, before)] = target.deliver([first], later())
        (allowed / "days").rename(allowed / "moved")
        (allowed / "days").symlink_to(outside)
        [(_, after)] = target.deliver([second], later())

    assert (before.accepted, after.accepted) == (True, False)
    assert "is a link" in str(after.error)
    assert list(outside.iterdir()) == []


def test_a_hard_link_is_not_written_through(allowed: Path, tmp_path: Path) -> None:
    """A second name of a file outside is refused, by the check of rules too; once it is a copy, it is written."""
    secret, path = tmp_path / "secret", allowed / "x.jsonl"
    secret.write_text("untouched\n")
    path.hardlink_to(secret)

    response = delivered(path, allowed)

    said = "is one of 2 hard links to a file, and another may be in another folder. Replace it with a copy"
    assert (response.accepted, response.error_class) == (False, "FileError")
    assert said in str(response.error)
    assert said in str(checked(path, allowed))
    assert secret.read_text() == "untouched\n"
    path.unlink()
    path.write_bytes(secret.read_bytes())
    assert delivered(path, allowed).accepted
    assert checked(path, allowed) is None
    assert secret.read_text() == "untouched\n"


@pytest.mark.parametrize("kind", ["pipe", "socket", "terminal"])
def test_what_is_no_regular_file_is_neither_waited_for_nor_written(kind: str, allowed: Path) -> None:
    """A named pipe without a reader, a socket, and a terminal that has no reader either are refused at once."""
    path = allowed / "x.jsonl"
    with ExitStack() as opened:
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "socket":
            opened.enter_context(closing(socket.socket(socket.AF_UNIX))).bind(str(path))
        else:
            ends = os.openpty()
            for each in ends:
                opened.callback(os.close, each)
            path = Path(os.ttyname(ends[1]))
            allowed = path.parent
        begun = time.monotonic()

        response = delivered(path, allowed)

        assert (response.accepted, response.error_class) == (False, "FileError")
        assert str(path) in str(response.error)
        assert checked(path, allowed) is not None
        assert time.monotonic() - begun < 2


def test_an_allowed_folder_may_be_reached_by_a_link(allowed: Path, tmp_path: Path) -> None:
    """The folder itself is the operator's: a mounted disk behind a link is one."""
    (tmp_path / "link").symlink_to(allowed)

    assert delivered("a/x.jsonl", tmp_path / "link").accepted
    assert (allowed / "a" / "x.jsonl").read_bytes() == b"{}\n"


def test_paths_count_from_the_first_folder_and_may_lie_in_each(tmp_path: Path) -> None:
    """A relative path needs no knowledge of the host; a process's working folder does not matter."""
    one, other = tmp_path / "one", tmp_path / "other"

    responses = [delivered(path, one, other) for path in ("a.jsonl", one / "b.jsonl", other / "deep" / "c.jsonl")]

    assert all(each.accepted for each in responses)
    assert sorted(everything(tmp_path)) == [
        "one",
        "one/a.jsonl",
        "one/b.jsonl",
        "other",
        "other/deep",
        "other/deep/c.jsonl",
    ]


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_files_and_folders_are_closed_to_others(allowed: Path, umask: int) -> None:
    """Files have mode 0640 and folders 0750, whatever the umask of the process would allow."""
    before = os.umask(umask)
    try:
        assert delivered("a/b/x.jsonl", allowed).accepted
    finally:
        os.umask(before)

    found = {name: stat.S_IMODE((allowed / name).stat().st_mode) for name in ("a", "a/b", "a/b/x.jsonl")}
    assert found == {"a": 0o750, "a/b": 0o750, "a/b/x.jsonl": 0o640}


@pytest.mark.parametrize(
    ("settings", "folders"),
    [
        ({}, ["{home}/files"]),
        ({"FILE_TARGET_FOLDERS": "/srv/a:/srv/b"}, ["/srv/a", "/srv/b"]),
        ({"FILE_TARGET_FOLDERS": "/srv/a/../b"}, ["/srv/b"]),
        ({"FILE_TARGET_FOLDERS": ""}, ["{home}/files"]),
    ],
)
def test_files_in_the_allowed_folder_are_reached(settings: dict[str, str], folders: list[str], tmp_path: Path) -> None:
    """One folder of the home unless the operator says otherwise."""
    environ = {f"EVENTBRIDGE_{name}": value for name, value in ({"HOME": str(tmp_path)} | settings).items()}

    found = Settings.from_mapping(environ).file_target_folders

    assert [str(each) for each in found] == [each.format(home=tmp_path) for each in folders]


def test_a_setting_without_a_folder_is_an_error() -> None:
    """A lone colon is no way to allow everything."""
    with pytest.raises(SettingsError, match="EVENTBRIDGE_FILE_TARGET_FOLDERS"):
        Settings.from_mapping({"EVENTBRIDGE_FILE_TARGET_FOLDERS": ":"})


@pytest.mark.parametrize("role", ["target", "dead_letter_queue"])
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/etc/cron.d/job", "is not below any of the folders for file targets"),
        ("link/x.jsonl", "is a link, but file targets follow no links"),
        ("a/.git/x", "contains '.git'"),
        ("../x", "contains '..'"),
        (".x", "is a hidden file"),
    ],
)
def test_rules_check_says_so(path: str, said: str, role: str, allowed: Path, tmp_path: Path) -> None:
    """The check of rule files refuses what a push would, with the place in the file."""
    (allowed / "link").symlink_to(tmp_path)
    rules = tmp_path / "rules"
    rules.mkdir()
    file: dict[str, Any] = {"target": path, "dead_letter_queue": "fine.jsonl"}
    if role == "dead_letter_queue":
        file = {"target": "fine.jsonl", "dead_letter_queue": path}
    (rules / "r.yaml").write_text(
        "buses: {b: {source: {type: embedded}}}\n"
        "rules:\n  r:\n    bus: b\n    pattern: {}\n    targets:\n      log:\n        type: file\n"
        f"        path: {file['target']}\n"
        f"        dead_letter_queue: {{type: file, path: {file['dead_letter_queue']}}}\n"
    )

    [error] = check_folder(rules, TargetLocations((allowed,))).errors

    assert said in error.message
    assert error.line == (9 if role == "target" else 10)
