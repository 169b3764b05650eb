"""Describes the types of targets and sources, and finds built-in and installed types by name.

Each type is described by one object, which is loaded when a rule file first uses the type, so that reading rules
imports no client library. Installed packages are searched for types only if a rule file uses one that is not built in:
the search takes as long as reading hundreds of rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, TypeVar

from eventbridge.config.target_locations import TargetLocations
from eventbridge.errors import PackageMissing, TypeUnusable
from eventbridge.rules.vocabulary import FIELDS, NOT_FOR_QUEUES

if TYPE_CHECKING:
    from eventbridge.rules.fields import Fields
    from eventbridge.rules.model import Source, Target, Transform


#: The unit in which a target takes deliveries: one delivery, a batch request (several in one request), a block of
#: payloads, or a span, which is always sent as a whole.
Takes = Literal["deliveries", "batch_requests", "blocks", "spans"]

_MIB = 1 << 20


class ChunkSize(NamedTuple):
    """The maximum size of a chunk, which is what one push task sends: `deliveries` is the number of deliveries, and
    `size` their total payload in bytes."""

    deliveries: int
    size: int


#: For targets that need one request per delivery: 5,000 deliveries at 250 a second fill the time budget of a push (20
#: s). It also applies to pending deliveries, and to targets that rules no longer define.
SMALL_CHUNK: Final = ChunkSize(5_000, 8 * _MIB)

#: For targets that take many deliveries per request. Memory sets the limit: a push keeps each delivery as an object of
#: about 1.3 KiB plus its payload.
BATCHED_CHUNK: Final = ChunkSize(20_000, 32 * _MIB)

#: For targets that take blocks of payloads: about a second of work. The payloads are held in memory only once, in the
#: layout of the file.
BULK_CHUNK: Final = ChunkSize(100_000, 128 * _MIB)

#: The default chunk size for each unit.
CHUNK_SIZES: Final[Mapping[Takes, ChunkSize]] = {
    "deliveries": SMALL_CHUNK,
    "batch_requests": BATCHED_CHUNK,
    "blocks": BULK_CHUNK,
    "spans": BULK_CHUNK,
}


@dataclass(frozen=True)
class ChunkSizes:
    """The chunk sizes from the settings; where one is None, that of the target's type applies."""

    deliveries: int | None = None
    size: int | None = None

    def size_of(self, target: Target | None) -> ChunkSize:
        """Return the chunk size of a target; `target` is None if rules no longer define it."""
        return self._set(SMALL_CHUNK if target is None else TARGET_TYPES.get(target.type).chunk_size_of(target))

    @property
    def small(self) -> ChunkSize:
        """Return the chunk size for pending deliveries and degraded targets; it is small enough for any target."""
        given = self._set(SMALL_CHUNK)
        return ChunkSize(min(given.deliveries, SMALL_CHUNK.deliveries), min(given.size, SMALL_CHUNK.size))

    def _set(self, size: ChunkSize) -> ChunkSize:
        return ChunkSize(self.deliveries or size.deliveries, self.size or size.size)


class Obstacle(NamedTuple):
    """The reason why a target cannot be used on this machine, with the field that causes it and the remedy."""

    field: str
    message: str
    remedy: str


def _takes_deliveries(_: Any) -> Takes:
    return "deliveries"


def _no_obstacle(_: Any, __: TargetLocations) -> Obstacle | None:
    return None


@dataclass(frozen=True)
class TargetType:
    """A type of target: its fields, how they are read, how a target is opened, and the unit in which it takes
    deliveries.

    `fields` is a model derived from `Target` that adds the fields of this type.
    `opener` is the path, as `module:function`, of a function that takes a `targets.open.Opening` and returns a target.
    The function is imported when the first target is opened. `read` returns the values of the type's fields from a rule
    file; if it is None, the model reads and validates them. If `read` is called without a transform, it reads a dead
    letter queue. `words` are the names of the fields in rule files, if they differ from the model's. If `chunk_size` is
    None, the default for the unit applies. `obstacle` returns what prevents the use of a target, given the locations
    where targets may write.
    """

    name: str
    fields: type[Target]
    opener: str
    takes: Callable[[Any], Takes] = _takes_deliveries
    chunk_size: Callable[[Any], ChunkSize] | None = None
    read: Callable[[Fields, Transform | None], dict[str, Any]] | None = None
    words: tuple[str, ...] | None = None
    obstacle: Callable[[Any, TargetLocations], Obstacle | None] = _no_obstacle

    @property
    def own_words(self) -> tuple[str, ...]:
        """Return the names that the type's fields have in a rule file."""
        return self.words if self.words is not None else own_fields(self.fields)

    def chunk_size_of(self, target: Target) -> ChunkSize:
        """Return the chunk size of a target of this type."""
        return CHUNK_SIZES[self.takes(target)] if self.chunk_size is None else self.chunk_size(target)


@dataclass(frozen=True)
class SourceType:
    """A type of source: its fields, how they are read, and how a source is opened.

    `fields` is a model derived from `Source`. `opener` is the path, as `module:function`, of a function that takes a
    `sources.open.Opening` and returns a `LogSource` or a `QueueSource`. If the source is also a `Publisher`, events can
    be published to it. `read` and `words` are as in `TargetType`; `words` must also list `topics` and `start_at` if the
    type has them. The default lists both.
    """

    name: str
    fields: type[Source]
    opener: str
    read: Callable[[Fields], dict[str, Any]] | None = None
    words: tuple[str, ...] | None = None

    @property
    def own_words(self) -> tuple[str, ...]:
        """Return the names that the type's fields have in a rule file."""
        return self.words if self.words is not None else ("topics", *own_fields(self.fields), "start_at")


def own_fields(model: Any) -> tuple[str, ...]:
    """Return the names of the fields that a model adds to its base class."""
    inherited = {name for parent in model.__mro__[1:] for name in getattr(parent, "model_fields", {})}
    return tuple(name for name in model.model_fields if name not in inherited)


Entry = TypeVar("Entry")


class Registry(Generic[Entry]):
    """The types by name: those that are built in, and those that the entry points of installed packages provide under
    their own names."""

    def __init__(self, group: str, entry: type[Entry], built_in: Mapping[str, str]) -> None:
        """`group` is the group of entry points, `entry` is the class of the objects that describe types, and `built_in`
        has the path of each built-in type as `module:object`."""
        self.group = group
        self.built_in = tuple(built_in)
        self._entry = entry
        self._paths = dict(built_in)
        self._loaded: dict[str, Entry] = {}
        self._found: dict[str, list[EntryPoint]] | None = None

    def names(self) -> list[str]:
        """Return the names of all types, those that are built in first."""
        return [*self.built_in, *(name for name in self._entry_points() if name not in self._paths)]

    def find(self, name: object) -> Entry | None:
        """Return the type with this name, or None if there is none. Raises TypeUnusable if its package cannot be
        used."""
        if not isinstance(name, str) or (name not in self._paths and name not in self._entry_points()):
            return None
        return self.get(name)

    def get(self, name: str) -> Entry:
        """Return the type with this name. Raises TypeUnusable if there is none, or if its package cannot be used."""
        found = self._loaded.get(name)
        if found is None:
            found = self._loaded[name] = self._load(name)
        return found

    def _load(self, name: str) -> Entry:
        loaded = load(self._paths[name]) if name in self._paths else self._from_package(name)
        if not isinstance(loaded, self._entry):
            what = f"the entry point {name!r} of the group {self.group} has the type {type(loaded).__name__}"
            raise TypeUnusable(f"{what}, but must have the type {self._entry.__name__}", "Update or remove its package")
        return loaded

    def _from_package(self, name: str) -> Any:
        points = self._entry_points().get(name, [])
        if not points:
            raise TypeUnusable(
                f"there is no type {name!r} in the group {self.group}. Known types: {', '.join(self.names())}",
                "Install the package that provides it on this machine",
            )
        if len(points) > 1:
            packages = " and ".join(sorted(_package(point) for point in points))
            raise TypeUnusable(f"the type {name!r} is provided by {packages}", "Remove one of these packages")
        try:
            return points[0].load()
        except Exception as error:
            what = f"the type {name!r} of the package {_package(points[0])} cannot be loaded"
            raise TypeUnusable(f"{what}: {type(error).__name__}: {error}", "Repair or remove the package") from error

    def _entry_points(self) -> dict[str, list[EntryPoint]]:
        if self._found is None:
            self._found = {}
            for point in entry_points(group=self.group):
                self._found.setdefault(point.name, []).append(point)
        return self._found


def load(path: str) -> Any:
    """Return the object that a path `module:name` refers to; importing the module may raise any exception."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def load_opener(group: str, name: str, path: str) -> Any:
    """Return the opener of a type.

    Raises PackageMissing if a package of one of EventBridge's extras is missing, and TypeUnusable if the import
    fails for another reason.
    """
    try:
        return load(path)
    except (ImportError, AttributeError) as error:
        missing = PackageMissing.from_import_error(error) if isinstance(error, ModuleNotFoundError) else None
        if missing is not None:
            raise missing from None
        what = f"the opener {path} of the type {name!r} of the group {group} cannot be loaded: {error}"
        raise TypeUnusable(what, "Install its dependencies on this machine, or repair its package") from error


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


TARGET_TYPES: Final = Registry(
    "eventbridge.targets",
    TargetType,
    {
        "http": "eventbridge.targets.http.fields:HTTP",
        "file": "eventbridge.targets.file.fields:FILE",
        "kafka": "eventbridge.targets.kafka.fields:KAFKA",
        "rocketmq": "eventbridge.targets.rocketmq.fields:ROCKETMQ",
        "s3": "eventbridge.targets.s3.fields:S3",
        "airflow": "eventbridge.targets.airflow.fields:AIRFLOW",
        "sql": "eventbridge.targets.sql.fields:SQL",
    },
)


SOURCE_TYPES: Final = Registry(
    "eventbridge.sources",
    SourceType,
    {
        "embedded": "eventbridge.sources.embedded.fields:EMBEDDED",
        "kafka": "eventbridge.sources.kafka.fields:KAFKA",
        "rocketmq": "eventbridge.sources.rocketmq.fields:ROCKETMQ",
        "sqs": "eventbridge.sources.sqs.fields:SQS",
    },
)


def fields_of(what: str) -> list[str]:
    """Return the fields of `what`, a key of `FIELDS`, including those of all built-in types."""
    own: list[str] = []
    if what == "a source":
        own = [word for name in SOURCE_TYPES.built_in for word in SOURCE_TYPES.get(name).own_words]
    elif what in ("a target", "a dead letter queue"):
        own = [word for name in TARGET_TYPES.built_in for word in TARGET_TYPES.get(name).own_words]
    words = dict.fromkeys([*FIELDS[what], *own])
    return [word for word in words if what != "a dead letter queue" or word not in NOT_FOR_QUEUES]
