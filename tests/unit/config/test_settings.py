"""Settings are read from a mapping, all errors at once, and docs/reference/settings.md says what the model says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from eventbridge.config.quantities import write_duration
from eventbridge.config.setting_types import PREFIX
from eventbridge.config.settings import Settings
from eventbridge.errors import SettingsError
from eventbridge.rules.model import PENDING_MAX

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "settings.md"


def rows() -> dict[str, tuple[str, str, str, str]]:
    """Return unit, default, range and reason by name, as the page has them."""
    found = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \| (.+?) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    return {name: (unit, default.strip("`"), limits, reason) for name, unit, default, limits, reason in found}


def errors(**given: str) -> list[str]:
    """Return what is said about the settings given without their prefix."""
    with pytest.raises(SettingsError) as caught:
        Settings.from_mapping({PREFIX + name: value for name, value in given.items()})
    return str(caught.value).splitlines()


def test_page_has_every_setting_and_no_other() -> None:
    """docs/reference/settings.md has one row for each setting."""
    assert sorted(PREFIX + name.upper() for name in Settings.model_fields) == sorted(rows())


@pytest.mark.parametrize("name", Settings.model_fields)
def test_page_says_what_the_model_says(name: str) -> None:
    """Unit, default, range and reason on the page are those of the code."""
    field = Settings.model_fields[name]
    unit, default, limits, reason = rows()[PREFIX + name.upper()]
    written = default.replace("<home>", str(Settings().home))
    low, high = limits_of(name)

    assert isinstance(field.json_schema_extra, dict)
    assert (field.json_schema_extra["unit"], field.description) == (unit, reason)
    given = {} if default == "not set" else {PREFIX + name.upper(): written}
    assert getattr(Settings(), name) == getattr(Settings.from_mapping(given), name)
    assert limits == (low or "any") + (f" to {high}" if high else "")


def limits_of(name: str) -> tuple[str, str]:
    """Return a field's limits in words."""
    field = Settings.model_fields[name]
    assert isinstance(field.json_schema_extra, dict)
    write = {"bytes": _write_size, "seconds": write_duration}.get(str(field.json_schema_extra["unit"]), str)
    limits = {
        kind: getattr(entry, kind) for entry in field.metadata for kind in ("ge", "gt", "le") if hasattr(entry, kind)
    }
    low = f"from {write(limits['ge'])}" if "ge" in limits else "above 0" if "gt" in limits else ""
    return low, write(limits["le"]) if "le" in limits else ""


def _write_size(size: float) -> str:
    unit, divisor = next((u, d) for u, d in (("MiB", 1 << 20), ("KiB", 1 << 10), ("", 1)) if size >= d or d == 1)
    return f"{int(size / divisor)}{unit}"


def test_everything_lies_below_home() -> None:
    """Ledger, store and buses follow the home folder, which is made absolute."""
    settings = Settings.from_mapping({"EVENTBRIDGE_HOME": "somewhere"})

    home = Path.cwd() / "somewhere"
    assert (home, f"sqlite:///{home}/ledger.sqlite", f"file://{home}/store", home / "bus") == (
        settings.home,
        settings.ledger_url,
        settings.store_uri,
        settings.bus_folder,
    )


def test_home_may_begin_with_a_tilde() -> None:
    """`~` is the user's home."""
    assert Path.home() / "eb" == Settings.from_mapping({"EVENTBRIDGE_HOME": "~/eb"}).home


@pytest.mark.parametrize(
    ("name", "written", "value"),
    [
        ("batch_max_size", "128MiB", 128 << 20),
        ("batch_max_size", "1.5 GiB", 3 << 29),
        ("batch_max_size", "2097152", 2 << 20),
        ("event_max_size", "512KiB", 512 << 10),
        ("push_timeout", "20", 20.0),
        ("push_timeout", "1.5", 1.5),
        ("push_timeout", "2m", 120.0),
        ("segment_interval", "250ms", 0.25),
        ("batch_max_events", "100_000", 100_000),
        ("spark_remote", "sc://127.0.0.1:15002", "sc://127.0.0.1:15002"),
        ("rules_folder", "my/rules", Path("my/rules")),
        ("webhook_allowed_origins", "Events.example, a.b", ("events.example", "a.b")),
        ("webhook_allowed_origins", "*", ("*",)),
    ],
)
def test_value_is_read_with_its_unit(name: str, written: str, value: object) -> None:
    """Sizes and durations may have a unit; counts may have underscores."""
    assert value == getattr(Settings.from_mapping({PREFIX + name.upper(): written}), name)


def test_other_names_and_connections_are_left_alone() -> None:
    """Only EVENTBRIDGE_* is read; EVENTBRIDGE_CONN_* are connections; an empty value is not set."""
    environ = {"PATH": "/bin", "EVENTBRIDGE_CONN_X": "http://x", "EVENTBRIDGE_HOME": "", "eventbridge_home": "y"}

    assert Settings() == Settings.from_mapping(environ)


@pytest.mark.parametrize(
    ("name", "written", "said"),
    [
        ("HOMME", "x", "unknown setting EVENTBRIDGE_HOMME. Did you mean EVENTBRIDGE_HOME?"),
        ("home", "x", "unknown setting EVENTBRIDGE_home. Did you mean EVENTBRIDGE_HOME?"),
        ("XYZZY", "x", "unknown setting EVENTBRIDGE_XYZZY. docs/reference/settings.md lists all settings."),
        (
            "BATCH_MAX_EVENTS",
            "many",
            "EVENTBRIDGE_BATCH_MAX_EVENTS: 'many' is not a whole number such as 500 or 50_000",
        ),
        (
            "BATCH_MAX_EVENTS",
            "0",
            "EVENTBRIDGE_BATCH_MAX_EVENTS: 0 is out of range: it must be at least 1, in events",
        ),
        (
            "BATCH_MAX_EVENTS",
            "-1",
            "EVENTBRIDGE_BATCH_MAX_EVENTS: -1 is out of range: it must be at least 1, in events",
        ),
        (
            "BATCH_MAX_CHUNKS",
            "2_000",
            "EVENTBRIDGE_BATCH_MAX_CHUNKS: 2_000 is out of range: "
            "it must be at least 1 and at most 1024, in push tasks",
        ),
        (
            "CHUNK_MAX_SIZE",
            "-1KiB",
            "EVENTBRIDGE_CHUNK_MAX_SIZE: -1KiB is out of range: it must be at least 1024, in bytes",
        ),
        (
            "CHUNK_MAX_SIZE",
            "8 MB",
            "EVENTBRIDGE_CHUNK_MAX_SIZE: '8 MB' is not a size such as 1048576, 512KiB, 64MiB or 1GiB",
        ),
        ("CHUNK_MAX_SIZE", "1024.5", "EVENTBRIDGE_CHUNK_MAX_SIZE: '1024.5' is not a whole number of bytes"),
        (
            "PUSH_TIMEOUT",
            "soon",
            "EVENTBRIDGE_PUSH_TIMEOUT: 'soon' is not a duration such as 500ms, 10s, 5m, 24h or 30d",
        ),
        *(
            (
                "PUSH_TIMEOUT",
                written,
                f"EVENTBRIDGE_PUSH_TIMEOUT: {value} is out of range: it must be above 0 and at most 600, in seconds",
            )
            for written, value in [("0", "0"), ("-5", "-5"), ("-1m", "-60.0"), ("1d", "86400.0")]
        ),
        (
            "WEBHOOK_ALLOWED_ORIGINS",
            "https://events.example",
            "EVENTBRIDGE_WEBHOOK_ALLOWED_ORIGINS: 'https://events.example' is not a DNS name such as "
            "eventgrid.azure.net, or * for any sender",
        ),
        (
            "LEDGER_URL",
            "user:secret@host",
            "EVENTBRIDGE_LEDGER_URL: it has no scheme such as file:// or sqlite://",
        ),
    ],
)
def test_rule_error(name: str, written: str, said: str) -> None:
    """An unusable value or name is reported with its name."""
    assert [said] == errors(**{name: written})


@pytest.mark.parametrize("scheme", ["sqlite", "sqlite+pysqlite"])
def test_a_ledger_that_is_a_folder(scheme: str, tmp_path: Path) -> None:
    """The error says that this is a folder, and how the URL of a file in it is written."""
    assert errors(LEDGER_URL=f"{scheme}:///{tmp_path}/") == [
        f"EVENTBRIDGE_LEDGER_URL: {tmp_path}/ is a folder, but a ledger is a file. "
        f"Name a file in it, such as sqlite:///{tmp_path}/ledger.sqlite"
    ]
    Settings.from_mapping({"EVENTBRIDGE_LEDGER_URL": f"{scheme}:///{tmp_path}/ledger.sqlite"})


def test_all_errors_are_reported_at_once() -> None:
    """Not only the first."""
    assert len(errors(HOMME="x", BATCH_MAX_EVENTS="0", STORE_URI="x")) == 3


def test_a_batch_must_hold_the_largest_event() -> None:
    """Limits that contradict one another are refused: such an event could never be taken."""
    assert errors(BATCH_MAX_SIZE="1MiB", EVENT_MAX_SIZE="2MiB") == [
        "EVENTBRIDGE_BATCH_MAX_SIZE must be at least EVENTBRIDGE_EVENT_MAX_SIZE: one event must fit"
    ]


def test_settings_cannot_be_changed_and_do_not_show_secrets() -> None:
    """The object is frozen; its text has neither the ledger's password nor Spark's token."""
    settings = Settings.from_mapping(
        {"EVENTBRIDGE_LEDGER_URL": "postgresql://u:hunter2@h/d", "EVENTBRIDGE_SPARK_REMOTE": "sc://h/;token=hunter2"}
    )

    with pytest.raises(ValidationError):
        setattr(settings, "batch_max_events", 1)  # noqa: B010 - a type checker refuses the plain assignment
    assert "hunter2" not in f"{settings!r} {settings}"


def test_an_error_in_the_home_folder_is_the_only_one_reported() -> None:
    """What is derived from a setting is not blamed for it."""
    with pytest.raises(ValidationError) as caught:
        Settings(home=5)  # type: ignore[arg-type]

    assert [error["loc"][0] for error in caught.value.errors() if error["type"] == "path_type"] == ["home"]


@pytest.mark.parametrize(
    ("seconds", "written"), [(0.5, "500ms"), (1, "1s"), (90, "90s"), (3600, "1h"), (86_400, "1d"), (1.5, "1.5s")]
)
def test_durations_are_written_as_they_are_read(seconds: float, written: str) -> None:
    """The shortest form with one unit."""
    assert written == write_duration(seconds)


def test_the_ledgers_url_comes_from_a_command_or_a_file(tmp_path: Path) -> None:
    """A password need not stand in a variable: a command prints the URL, or a file holds it."""
    (tmp_path / "url").write_text("\nsqlite:////tmp/my file.sqlite\n")
    by_file = Settings.from_mapping({"EVENTBRIDGE_LEDGER_URL_FILE": str(tmp_path / "url")})
    by_command = Settings.from_mapping({"EVENTBRIDGE_LEDGER_URL_CMD": "echo 'sqlite:////tmp/my file.sqlite'"})

    assert (by_file.ledger_url, by_command.ledger_url) == ("sqlite:////tmp/my file.sqlite",) * 2


def test_the_command_that_prints_the_ledgers_url_runs_once(tmp_path: Path) -> None:
    """Every DAG file and every hook of one process asks for the settings; the command is asked once."""
    counting = f"sh -c 'echo x >> {tmp_path}/runs; echo sqlite:////tmp/ledger.sqlite'"
    for _ in range(3):
        Settings.from_mapping({"EVENTBRIDGE_LEDGER_URL_CMD": counting})

    assert (tmp_path / "runs").read_text() == "x\n"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"LEDGER_URL": "sqlite:////a", "LEDGER_URL_CMD": "b"},
            "EVENTBRIDGE_LEDGER_URL and EVENTBRIDGE_LEDGER_URL_CMD are",
        ),
        (
            {"LEDGER_URL_CMD": "sh -c 'echo hunter2 >&2; exit 3'"},
            "EVENTBRIDGE_LEDGER_URL_CMD: the command ended with exit code 3",
        ),
        ({"LEDGER_URL_CMD": "no-such-command-here"}, "no-such-command-here: No such file"),
        ({"LEDGER_URL_CMD": "true"}, "the command printed no URL"),
        ({"LEDGER_URL_CMD": "printf hunter2\\\\nhunter2"}, "the command printed more than one line"),
        ({"LEDGER_URL_CMD": "' "}, "EVENTBRIDGE_LEDGER_URL_CMD: No closing quotation"),
        ({"LEDGER_URL_FILE": "/no/such/file"}, "EVENTBRIDGE_LEDGER_URL_FILE: /no/such/file: No such file"),
        ({"LEDGER_URL_CMD": "echo hunter2"}, "EVENTBRIDGE_LEDGER_URL: it has no scheme"),
    ],
)
def test_a_failing_command_for_the_ledgers_url_is_reported_without_its_output(given: dict[str, str], said: str) -> None:
    """The variable and the remedy are named; what was printed may be a password, and is not shown."""
    (error,) = errors(**given)

    assert said in error
    assert "hunter2" not in error


def _stated_defaults() -> list[tuple[str, str]]:
    """Return sentences of other pages that state defaults, as (page, sentence with the numbers of the code)."""
    disk, bucket = Settings(), Settings.from_mapping({f"{PREFIX}STORE_URI": "s3://shop@bucket/prefix"})
    return [
        (
            "howto/s3-store.md",
            f"every {bucket.segment_responses:,} or {bucket.segment_interval:.0f} s (`EVENTBRIDGE_SEGMENT_RESPONSES`, "
            f"`EVENTBRIDGE_SEGMENT_INTERVAL`) instead of {disk.segment_responses:,} or {disk.segment_interval:.0f} s",
        ),
        (
            "howto/s3-store.md",
            f"lands {bucket.buffer_range_events:,} events at a time (`EVENTBRIDGE_BUFFER_RANGE_EVENTS`) "
            f"instead of {disk.buffer_range_events:,}",
        ),
        ("reference/limits.md", f"| an event | {disk.event_max_size >> 20} MiB |"),
        (
            "reference/limits.md",
            f"| events of a batch | {disk.batch_max_events:,}, or {disk.batch_max_size >> 30} GiB;",
        ),
        ("reference/limits.md", f"| deliveries of a batch | {disk.batch_max_deliveries:,} |"),
        ("reference/limits.md", f"| push tasks of a run | {disk.batch_max_chunks} |"),
        ("reference/limits.md", f"| pending deliveries of a rule | {PENDING_MAX:,}, then"),
        (
            "reference/limits.md",
            f"{disk.route_rule_cpu_budget:.0f} s of CPU time a batch, "
            f"{disk.route_total_cpu_budget:.0f} s for all rules",
        ),
        ("howto/replay.md", f"`EVENTBRIDGE_REPLAY_TIMEOUT` ({disk.replay_timeout / 3600:.0f} hours)"),
        ("howto/schemas.md", f"{disk.schema_sample_events} in all (`EVENTBRIDGE_SCHEMA_SAMPLE_EVENTS`"),
        (
            "reference/transforms.md",
            f"{disk.route_rule_cpu_budget:.0f} s of CPU time per batch (`EVENTBRIDGE_ROUTE_RULE_CPU_BUDGET`)",
        ),
        (
            "reference/transforms.md",
            f"{disk.route_total_cpu_budget:.0f} s of CPU time on them (`EVENTBRIDGE_ROUTE_TOTAL_CPU_BUDGET`)",
        ),
    ]


@pytest.mark.parametrize(("page", "sentence"), _stated_defaults())
def test_other_pages_state_the_defaults_of_the_code(page: str, sentence: str) -> None:
    """Where a page names a default beside its setting, the number is that of the code."""
    assert sentence in (PAGE.parents[1] / page).read_text()
