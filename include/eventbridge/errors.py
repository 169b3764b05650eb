"""Defines the base class of all errors and the errors that several modules raise, in one tree.

EventBridgeError
├── UserError                 wrong input from a user: shown without a traceback, exit code 2
│   ├── SettingsError         an EVENTBRIDGE_* setting
│   ├── PackageMissing        a package that an extra of this one installs
│   ├── RuleFileError         rule files; holds all of their RuleErrors
│   ├── PatternError          a filter pattern
│   ├── TransformError        a transform's definition
│   ├── EventError            not one strict JSON object, or not a CloudEvent
│   ├── TypeUnusable          a type of target, source or transform whose package is missing or cannot be used
│   ├── ConnectionUnusable    a connection that is named but not defined, or cannot be read
│   └── NotFoundError         a rule, target, batch or dead letter that does not exist
│       └── PartlySearched    it may exist in a file that cannot be read: exit code 1
├── OperatorError             the product stopped to avoid data loss; an operator must act, exit code 3
│   ├── LedgerLostError       the store has a newer history than this ledger
│   ├── OffsetGapError        a committed offset does not belong to the present log
│   ├── RuleMovedError        a rule moved to a runner that is past events that the rule has not seen
│   └── ReconciliationError   a batch is not reconciled
├── InfrastructureError       disk, database, bus or Spark; trying again later may help, exit code 4
│   ├── StoreError
│   │   ├── StoreFileMissing     no file has this name
│   │   ├── StoreFileDamaged     the file does not hold what was written
│   │   ├── StoreFileUnreadable  the disk or the file's permissions prevent reading it
│   │   └── NewerFormatError     a newer version of the product wrote it
│   ├── LedgerError
│   ├── SettledAgainError     a repair settled a batch again while another process used its settlement
│   ├── BusError
│   ├── PlugInError       a plug-in raised, did not return, or returned nonsense
│   ├── StreamingLeaseTakenError       another process delivers the events of a runner in streaming mode
│   └── SparkError
├── BudgetSpent               the CPU budget of a rule's transforms in this batch is spent; its events are routed later
└── TransformFailed           one event that one transform cannot render (a dead letter, not a user error)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eventbridge.version import wheel_file


class EventBridgeError(Exception):
    """The base of all errors of EventBridge."""

    exit_code = 70


class UserError(EventBridgeError):
    """Input from a user cannot be used as it is."""

    exit_code = 2


class SettingsError(UserError):
    """A setting has an unusable value."""


#: The extra of this package that installs an optional package, by import name; pyproject.toml lists the packages.
EXTRAS = {
    "airflow": "airflow",
    "boto3": "s3",
    "botocore": "s3",
    "celery": "celery",
    "confluent_kafka": "kafka",
    "deltalake": "delta",
    "fastapi": "api",
    "great_expectations": "quality",
    "httptools": "api",
    "httpx": "client",
    "jinja2": "api",
    "mcp": "mcp",
    "openlineage": "lineage",
    "opentelemetry": "otel",
    "pandas": "spark",
    "prometheus_client": "api",
    "psycopg": "postgresql",
    "pyiceberg": "iceberg",
    "pyspark": "spark",
    "uvicorn": "api",
    "uvloop": "api",
}


class PackageMissing(UserError):
    """A required package is not installed."""

    @classmethod
    def from_import_error(cls, error: ModuleNotFoundError) -> PackageMissing | None:
        """Return the error for a failed import, with the command that installs the package; None if no extra has it."""
        package = (error.name or "").partition(".")[0]
        return cls.from_package(package) if package in EXTRAS else None

    @classmethod
    def from_package(cls, package: str) -> PackageMissing:
        """Return the error for a package, given by its import name, that one of the extras installs."""
        extra = EXTRAS[package]
        return cls(
            f"{package} is not installed. It belongs to the {extra} extra: "
            f"pip install '{wheel_file()}[{extra}]', with the path of the wheel that you installed. In a checkout, "
            "`make wheel` builds it in the folder dist"
        )


@dataclass(frozen=True)
class RuleError:
    """One error in a rule file: its position, what is wrong, and its remedy.

    `line` and `column` count from 1; `path` is a JSON path such as `$.rules.big-orders.bus`.
    """

    file: str
    line: int
    column: int
    path: str
    message: str
    remedy: str

    def __str__(self) -> str:
        # a key in the path may contain line breaks and control characters of terminals
        path = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in self.path)
        return f"{self.file}:{self.line}:{self.column}: {path}: {self.message}. {self.remedy}"


#: The maximum number of errors in one message; a wrongly generated file may have hundreds of thousands.
MAX_NAMED = 200


def error_lines(errors: Sequence[object]) -> list[str]:
    """Return a line for each of the first 200 errors, and one that counts the rest if there are more."""
    more = len(errors) - MAX_NAMED
    return [*map(str, errors[:MAX_NAMED]), *([f"and {more:,} more"] if more > 0 else [])]


class RuleFileError(UserError):
    """Rule files have errors; `errors` holds all of them, and the message names the first 200."""

    def __init__(self, errors: Sequence[RuleError]) -> None:
        self.errors = tuple(errors)
        count = len(self.errors)
        head = f"{count} error{'s' if count != 1 else ''} in the rule files:"
        super().__init__("\n".join([head, *error_lines(self.errors)]))


class PatternError(UserError):
    """A filter pattern is not in the pattern language.

    `path` is the JSON path inside the pattern, and `value` is the offending part.
    """

    def __init__(self, message: str, *, path: str = "$", value: object = None, remedy: str = "") -> None:
        self.message = message
        self.path = path
        self.value = value
        self.remedy = remedy
        super().__init__(f"{path}: {message}." + (f" {remedy}" if remedy else ""))


class TransformError(UserError):
    """A transform's definition cannot be used; `path` is the JSON path inside the transform."""

    def __init__(self, message: str, *, path: str = "$", value: object = None, remedy: str = "") -> None:
        self.message = message
        self.path = path
        self.value = value
        self.remedy = remedy
        super().__init__(f"{path}: {message}." + (f" {remedy}" if remedy else ""))


class EventError(UserError):
    """Text is not one strict JSON object, or the object is not a CloudEvent."""


class TypeUnusable(UserError):
    """A type of target, source or transform does not exist, or its package cannot be used."""

    def __init__(self, problem: str, remedy: str) -> None:
        self.what = problem
        self.remedy = remedy
        super().__init__(f"{problem[:1].upper()}{problem[1:]}. {remedy}.")


class ConnectionUnusable(UserError):
    """A connection is named but not defined, or its URI cannot be read."""


class NotFoundError(UserError):
    """The requested object does not exist."""


class PartlySearched(NotFoundError):
    """The requested object was not found, but may be in a file that cannot be read."""

    exit_code = 1


class OperatorError(EventBridgeError):
    """The product stopped to avoid data loss; an operator must act."""

    exit_code = 3


class LedgerLostError(OperatorError):
    """The store has a newer history than this ledger, which is empty or old and must not be taken for a first start."""


class OffsetGapError(OperatorError):
    """A committed offset is beyond the end of its log or from another log; the log was truncated or replaced."""


class RuleMovedError(OperatorError):
    """A rule moved to a runner whose offsets are past events that the rule was not matched against."""


class ReconciliationError(OperatorError):
    """A batch is not reconciled, or a file that reconciliation needs cannot be read."""


class InfrastructureError(EventBridgeError):
    """A disk, database, bus or Spark failed; nothing was committed and trying again later may help."""

    exit_code = 4


class PlugInError(InfrastructureError):
    """The code of a plug-in raised, did not return, or returned what its contract does not allow."""


class StoreError(InfrastructureError):
    """The object store cannot be read or written."""


class StoreFileMissing(StoreError):
    """The object store holds no file with this name."""


class StoreFileDamaged(StoreError):
    """A file of the object store does not hold what was written; trying again does not help."""


class StoreFileUnreadable(StoreError):
    """The disk or this user's permissions prevent reading one file; others may be readable."""


class NewerFormatError(StoreError):
    """A newer version of the product wrote a file, in a format that this version cannot read."""

    def __init__(self, name: str, found: int, known: int) -> None:
        super().__init__(
            f"{name} is of format {found}, and this version of EventBridge reads formats up to {known}. "
            "Install the version that wrote it, or a newer one; the file was left as it is."
        )


class LedgerError(InfrastructureError):
    """The ledger's database cannot be reached or refuses a statement."""


class SettledAgainError(InfrastructureError):
    """A repair settled a batch again while another process worked with the previous settlement."""


class BusError(InfrastructureError):
    """An event bus cannot be reached or responds with an error."""


class StreamingLeaseTakenError(InfrastructureError):
    """Another process has the lease of a runner."""


class SparkError(InfrastructureError):
    """Spark cannot be reached, or a Spark job failed.

    Its text may quote an event with half of a surrogate pair, which JSON allows but no log, ledger or store accepts.
    Therefore `?` replaces it.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text.encode("utf-8", "replace").decode())


class TransformFailed(EventBridgeError):
    """One event cannot be rendered by one transform, so its delivery becomes a dead letter."""

    exit_code = 1


class BudgetSpent(EventBridgeError):
    """The CPU budget of a rule's transforms in this batch is spent, so the event is routed later."""

    exit_code = 1
