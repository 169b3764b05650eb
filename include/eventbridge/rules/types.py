"""Describes the types of targets, sources and transforms, and finds built-in and installed types by name.

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
from eventbridge.errors import EventBridgeError, PackageMissing, PlugInError, TypeUnusable
from eventbridge.plug_in_calls import PlugIn, call
from eventbridge.rules.vocabulary import FIELDS, NOT_FOR_QUEUES

if TYPE_CHECKING:
    from pydantic import BaseModel

    from eventbridge.rules.fields import Fields
    from eventbridge.rules.model import Source, Target, Transform


#: The unit in which a target takes deliveries: one delivery, a batch request (several in one request), a block of
#: payloads, or a span, which is always sent as a whole.
Takes = Literal["deliveries", "batch_requests", "blocks", "spans"]

_MIB = 1 << 20
#: The maximum time that the import of a plug-in may take, in seconds.
_IMPORT_SECONDS: Final = 60.0


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
        return self._set(
            SMALL_CHUNK if target is None else TARGET_TYPES.get_in_force(target.type).chunk_size_of(target)
        )

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


def _no_obstacle(_: Any, __: TargetLocations) -> Obstacle | None:
    return None


@dataclass(frozen=True)
class TargetType:
    """A type of target: its fields, how they are read, how a target is opened, and the unit in which it takes
    deliveries.

    `fields` is a model derived from `Target` that adds the fields of this type.
    `opener` is a function that takes a `targets.open.TargetSetup` and returns a target: that of a plug-in, as
    `eventbridge.plugins` describes it, or one of `targets.protocol`. As `module:function` it is imported when the first
    target is opened. `takes` is a unit, or a function that returns the unit of a target.
    `read` returns the values of the type's fields from a rule file; if it is None, the model reads and validates them.
    If `read` is called without a transform, it reads a dead letter queue. `words` are the names of the fields in rule
    files, if they differ from the model's. If `chunk_size` is None, the default for the unit applies. `obstacle`
    returns what prevents the use of a target, given the locations where targets may write.
    """

    name: str
    fields: type[Target]
    opener: str | Callable[[Any], Any]
    takes: Takes | Callable[[Any], Takes] = "deliveries"
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
        return CHUNK_SIZES[self.takes_of(target)] if self.chunk_size is None else self.chunk_size(target)

    def takes_of(self, target: Target) -> Takes:
        """Return the unit in which a target of this type takes deliveries."""
        return self.takes(target) if callable(self.takes) else self.takes


@dataclass(frozen=True)
class SourceType:
    """A type of source: its fields, how they are read, and how a source is opened.

    `fields` is a model derived from `Source`. `opener` is a function, or `module:function`, that takes a
    `sources.open.SourceSetup` and returns the source of a plug-in, as `eventbridge.plugins` describes it, or a
    `LogSource` or `QueueSource`; if it is also a `Publisher`, events can be published to it. `read` and `words` are as
    in `TargetType`; `words` also lists `topics`, `start_at` and `mapping` if the type has them: by default a queue of a
    plug-in has `mapping`, any other type the first two.
    """

    name: str
    fields: type[Source]
    opener: str | Callable[[Any], Any]
    read: Callable[[Fields], dict[str, Any]] | None = None
    words: tuple[str, ...] | None = None

    @property
    def own_words(self) -> tuple[str, ...]:
        """Return the names that the type's fields have in a rule file."""
        if self.words is not None:
            return self.words
        return (*own_fields(self.fields), *self.fields.SHARED_WORDS)


@dataclass(frozen=True)
class TransformType:
    """A form of transforms: its settings, which rule files give as `value`, and how an output is made.

    `opener` is a function, or `module:function`, that takes the settings and returns a function of an event, a `dict`,
    that returns the output: any JSON value. Whole numbers in the event are `int`, all others are `Decimal`.
    """

    name: str
    fields: type[BaseModel]
    opener: str | Callable[[Any], Callable[[dict[str, Any]], Any]]

    @property
    def own_words(self) -> tuple[str, ...]:
        """Return the names that the settings have in `value`."""
        return tuple(self.fields.model_fields)


def own_fields(model: Any) -> tuple[str, ...]:
    """Return the names of the fields that a model, with base classes of its package, adds to those of EventBridge."""
    shared = [parent for parent in model.__mro__[1:] if parent.__module__.startswith("eventbridge.rules.")]
    inherited = {name for parent in shared for name in getattr(parent, "model_fields", {})}
    return tuple(name for name in model.model_fields if name not in inherited)


Entry = TypeVar("Entry", TargetType, SourceType, TransformType)


class Registry(Generic[Entry]):
    """The types by name: those that are built in, and those that the entry points of installed packages provide under
    their own names."""

    def __init__(
        self, kind: str, entry: type[Entry], built_in: Mapping[str, str], base: str, unusable: str = ""
    ) -> None:
        """Take the kind of the types, the class that describes one, and the built-in types as `module:object`.

        `base` is the `module:object` of the base class of their fields, `unusable` that of the fields of a type whose
        package cannot be used.
        """
        self.kind = kind
        self.group = f"eventbridge.{kind}s"
        self.built_in = tuple(built_in)
        self._entry: type[Entry] = entry
        self._paths = dict(built_in)
        self._base, self._unusable = base, unusable
        self._loaded: dict[str, Entry | TypeUnusable] = {}
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
            try:
                found = self._load(name)
            except TypeUnusable as error:  # kept, because each attempt to import a module that hangs costs a minute
                found = error
            self._loaded[name] = found
        if isinstance(found, TypeUnusable):
            raise TypeUnusable(found.what, found.remedy)
        return found

    def get_in_force(self, name: str) -> Entry:
        """Return the type of a name for rules in force, of which one may have lost its package.

        Such a type accepts any fields, and the TypeUnusable is raised when it is opened: other rules do not need it.
        """
        try:
            return self.get(name)
        except TypeUnusable as error:
            return self._entry(name, load(self._unusable), _refusing(error))

    def in_force(self, values: Mapping[str, Any]) -> Any:
        """Return the model of the fields of a rule or bus in force, whose package may not accept them any more."""
        name = str(values.get("type"))
        fields: Any = self.get_in_force(name).fields
        try:
            return fields.model_validate(values)
        except Exception:  # a validator of a plug-in may raise anything
            if name in self.built_in:
                raise
            return load(self._unusable).model_validate(values)

    def plug_in(self, name: str) -> PlugIn | None:
        """Return the package that provides a type, None if it is built in."""
        if name in self._paths:
            return None
        points = self._entry_points().get(name)
        if not points:
            return PlugIn(self.kind, name, "that is not installed", "")
        dist = points[0].dist
        return PlugIn(self.kind, name, _package(points[0]), "" if dist is None else dist.version)

    def load_opener(self, name: str, fields: object = None) -> Any:
        """Return the opener of a type of rules in force, for `fields`, unless its package does not accept these.

        Raises PackageMissing if a package of one of EventBridge's extras is missing, and TypeUnusable if the type
        cannot be used or the import fails for another reason.
        """
        kind = self.get_in_force(name)
        opener = kind.opener
        if fields is not None and isinstance(fields, load(self._unusable)) and not isinstance(fields, kind.fields):
            what = f"{self._label(name)} does not accept the fields that the rules in force have"
            return _refusing(TypeUnusable(what, "Install the version of its package for which they were written"))
        if not isinstance(opener, str):
            return opener
        try:
            return load(opener)
        except (ImportError, AttributeError) as error:
            missing = PackageMissing.from_import_error(error) if isinstance(error, ModuleNotFoundError) else None
            if missing is not None:
                raise missing from None
            what = f"the opener {opener} of {self._label(name)} cannot be loaded: {error}"
            raise TypeUnusable(what, "Install its dependencies on this machine, or update its package") from error

    def _label(self, name: str) -> str:
        return str(self.plug_in(name) or f"the built-in {self.kind} type {name!r}")

    def _load(self, name: str) -> Entry:
        loaded = load(self._paths[name]) if name in self._paths else self._from_package(name)
        if not isinstance(loaded, self._entry):
            what = f"{self._label(name)} is an object of the type {type(loaded).__name__}"
            raise TypeUnusable(f"{what}, but must have the type {self._entry.__name__}", "Update or remove its package")
        if name not in self._paths and (problem := self._problem_of_plug_in(name, loaded)) is not None:
            raise TypeUnusable(f"{self._label(name)} {problem}", "Update or remove its package")
        return loaded

    def _problem_of_plug_in(self, name: str, loaded: Any) -> str | None:
        """Return what a plug-in's description must not say; what only built-in types use is not called safely."""
        base = load(self._base)
        if not isinstance(loaded.fields, type) or not issubclass(loaded.fields, base):
            return f"has fields that are no model derived from {base.__name__}"
        if loaded.name != name:
            return f"is named {loaded.name!r}, but its entry point {name!r}"
        if getattr(loaded, "takes", "spans") not in ("deliveries", "spans"):
            return f"takes {loaded.takes!r}, but must take deliveries or spans"
        plain = self._entry(name, loaded.fields, loaded.opener)
        ours = [
            each for each in ("read", "chunk_size", "obstacle") if getattr(loaded, each, 0) != getattr(plain, each, 0)
        ]
        return f"sets {ours[0]}, which is for built-in types" if ours else None

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
        plug_in = self.plug_in(name)
        assert plug_in is not None, "a package provides it"
        try:
            return call(plug_in, points[0].load, _IMPORT_SECONDS, is_limited=False)
        except EventBridgeError as error:
            what = str(error) if isinstance(error, PlugInError) else str(plug_in.raised(error))
            raise TypeUnusable(f"{what}, when it was imported", "Update or remove the package") from error

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


def _refusing(error: TypeUnusable) -> Callable[[Any], Any]:
    def refuse(_: Any) -> Any:
        raise error

    return refuse


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


TARGET_TYPES: Final = Registry(
    "target",
    TargetType,
    {
        "http": "eventbridge.targets.http.fields:HTTP",
        "file": "eventbridge.targets.file.fields:FILE",
        "kafka": "eventbridge.targets.kafka.fields:KAFKA",
        "rocketmq": "eventbridge.targets.rocketmq.fields:ROCKETMQ",
        "s3": "eventbridge.targets.s3.fields:S3",
        "airflow": "eventbridge.targets.airflow.fields:AIRFLOW",
        "sql": "eventbridge.targets.sql.fields:SQL",
        "delta": "eventbridge.targets.delta.fields:DELTA",
        "iceberg": "eventbridge.targets.iceberg.fields:ICEBERG",
        "queue": "eventbridge.targets.queue.fields:QUEUE",
    },
    base="eventbridge.rules.model:Target",
    unusable="eventbridge.rules.model:UnusableTarget",
)


SOURCE_TYPES: Final = Registry(
    "source",
    SourceType,
    {
        "embedded": "eventbridge.sources.embedded.fields:EMBEDDED",
        "kafka": "eventbridge.sources.kafka.fields:KAFKA",
        "rocketmq": "eventbridge.sources.rocketmq.fields:ROCKETMQ",
        "sqs": "eventbridge.sources.sqs.fields:SQS",
    },
    base="eventbridge.rules.model:Source",
    unusable="eventbridge.rules.model:UnusableSource",
)

TRANSFORM_TYPES: Final = Registry("transform", TransformType, {}, base="pydantic:BaseModel")


def fields_of(what: str) -> list[str]:
    """Return the fields of `what`, a key of `FIELDS`, including those of all built-in types."""
    own: list[str] = []
    if what == "a source":
        own = [word for name in SOURCE_TYPES.built_in for word in SOURCE_TYPES.get(name).own_words]
    elif what in ("a target", "a dead letter queue"):
        own = [word for name in TARGET_TYPES.built_in for word in TARGET_TYPES.get(name).own_words]
    words = dict.fromkeys([*FIELDS[what], *own])
    return [word for word in words if what != "a dead letter queue" or word not in NOT_FOR_QUEUES]
