"""Describes what a task read and wrote to OpenLineage's provider, if Airflow has it.

The provider calls operators after their task has reported its result, in a process that it ends after `[openlineage]
execution_timeout`. So neither an error nor a delay of lineage has any effect on deliveries, and without the provider
nothing is imported. An exception is logged by the provider, as a warning of the task.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from airflow.providers.openlineage import conf
from airflow.providers.openlineage.extractors import OperatorLineage
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    column_lineage_dataset,
    input_statistics_input_dataset,
    output_statistics_output_dataset,
    schema_dataset,
)

from eventbridge.airflow.connections import CachedConnections
from eventbridge.airflow.dataset_names import DatasetName, DatasetNames
from eventbridge.airflow.settings import airflow_settings
from eventbridge.errors import EventBridgeError
from eventbridge.policy.column_lineage import Column, columns_of
from eventbridge.policy.field_use import accepts_type, pattern_fields
from eventbridge.rules import Rule, RuleSet
from eventbridge.rules import Target as TargetRule
from eventbridge.runtime.open import open_runtime

if TYPE_CHECKING:
    from eventbridge.control.publish import Published
    from eventbridge.delivery.push import PushReport
    from eventbridge.model.event_schema import EventSchema
    from eventbridge.runtime.runtime import Runtime
    from eventbridge.streaming.task import StreamingSummary

log = logging.getLogger(__name__)

#: The maximum number of event types of a bus whose fields are in the schema and in the column lineage.
_MAX_TYPES: Final = 50
#: The time for which a connection is cached, which is longer than the provider waits.
_CONNECTION_SECONDS: Final = 60.0

Key = tuple[str, str]


def push_lineage(batch_id: str, chunk_id: int, report: PushReport | None) -> OperatorLineage[Any, Any]:
    """Return the datasets of a push: the buses of its deliveries, and its targets. Without a report there are none."""
    if report is None or not report.targets:
        return OperatorLineage()
    reports = [each for each in report.targets if each.total]
    with closing(_open()) as runtime:
        rules = runtime.rules_of(runtime.ledger.batches.get(batch_id))
        rows, sizes = Counter[Key](), Counter[Key]()
        for piece in runtime.ledger.chunks.get(batch_id, chunk_id).pieces:
            rows[piece.rule, piece.target] += piece.count
            sizes[piece.rule, piece.target] += piece.size
        read: Counter[str] = Counter()
        written = {}
        for each in reports:
            key = each.rule, each.target
            if each.rule in rules.rules:
                read[rules.rules[each.rule].bus] += each.total
                # only the size of all deliveries of a target is known, and not that of each
                written[key] = Written(each.delivered, sizes[key] if each.delivered == rows[key] else None)
        return _Lineage(runtime, rules, read).describe(written)


def streaming_lineage(runner: str, summary: StreamingSummary | None) -> OperatorLineage[Any, Any]:
    """Return the datasets of a streaming task: the bus of its runner, and the targets that it delivered to."""
    if summary is None or not (summary.events or summary.delivered):
        return OperatorLineage()
    with closing(_open()) as runtime:
        rules = runtime.rule_set().for_runner(runner)
        buses = {rule.bus for rule in rules.rules.values()} if summary.events else set()
        written = {key: Written(rows, None) for key, rows in summary.delivered.items()}
        return _Lineage(runtime, rules, dict.fromkeys(buses, summary.events)).describe(written)


def publish_lineage(published: Published | None) -> OperatorLineage[Any, Any]:
    """Return the dataset that a task published to: the topic, or the embedded bus."""
    if published is None:
        return OperatorLineage()
    with closing(_open()) as runtime:
        names = _Lineage(runtime, runtime.rule_set(), {published.bus: 0}).names_of_bus(published.bus)
    facet = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=published.count)
    chosen = [each for each in names if len(names) == 1 or each.name == published.topic]
    return OperatorLineage(
        outputs=[
            OutputDataset(namespace=each.namespace, name=each.name, outputFacets={"outputStatistics": facet})
            for each in chosen
        ]
    )


def _open() -> Runtime:
    return open_runtime(airflow_settings(), CachedConnections(_CONNECTION_SECONDS))


class Written(NamedTuple):
    """What a task delivered to a target: the number of deliveries, and their bytes, or None if unknown."""

    rows: int
    size: int | None


@dataclass
class _Output:
    """The dataset of one or several targets: what was delivered, and its column lineage."""

    rows: int = 0
    size: int | None = 0
    columns: dict[str, list[tuple[str, Column]]] = field(default_factory=lambda: defaultdict(list))
    filters: dict[tuple[str, str], None] = field(default_factory=dict)


class _Lineage:
    """Builds the lineage of one task. `read` has the rows that it read from each bus."""

    def __init__(self, runtime: Runtime, rules: RuleSet, read: Mapping[str, int]) -> None:
        self._rules = rules
        self._read = read
        locations = runtime.settings.target_locations
        self._names = DatasetNames(conf.namespace(), runtime.connections, locations)
        self._buses = {name: self.names_of_bus(name) for name in read if name in rules.buses}
        self._schemas = {name: runtime.ledger.schemas.find(_MAX_TYPES, bus=name) for name in self._buses}

    def describe(self, written: Mapping[Key, Written]) -> OperatorLineage[Any, Any]:
        """Return the inputs, and an output for each target; targets that are the same dataset are one output."""
        outputs: dict[DatasetName, _Output] = defaultdict(_Output)
        for (rule_name, target_name), each in sorted(written.items()):
            rule = self._rules.rules.get(rule_name)
            target = rule.destinations.get(target_name) if rule is not None else None
            if rule is not None and target is not None:
                self._add(outputs[self._target_dataset(rule_name, target)], rule, target, each)
        return OperatorLineage(
            inputs=[dataset for name in self._buses for dataset in self._inputs(name)],
            outputs=[self._output(name, output) for name, output in outputs.items()],
        )

    def names_of_bus(self, name: str) -> list[DatasetName]:
        """Return the datasets of a bus, or a name of EventBridge's own if its connection is unusable."""
        try:
            return self._names.bus_names(self._rules.buses[name])
        except (EventBridgeError, ValueError) as error:  # ValueError: a URL in a connection
            log.warning("OpenLineage: the bus %s gets a name of EventBridge's own: %s", name, error)
            return [self._names.own(name)]

    def _target_dataset(self, rule: str, target: TargetRule) -> DatasetName:
        try:
            return self._names.target_name(rule, target)
        except (EventBridgeError, OSError, ValueError) as error:
            log.warning("OpenLineage: the target %s/%s gets a name of EventBridge's own: %s", rule, target.name, error)
            return self._names.own(f"{rule}/{target.name}")

    def _add(self, output: _Output, rule: Rule, target: TargetRule, written: Written) -> None:
        output.rows += written.rows
        output.size = None if output.size is None or written.size is None else output.size + written.size
        if rule.bus not in self._buses:
            return
        accepted = [each for each in self._schemas[rule.bus] if accepts_type(rule, each.type)]
        known = {path for schema in accepted for path in schema.fields}
        for path, column in columns_of(target.transform, target.content_mode, known).items():
            if (rule.bus, column) not in output.columns[path]:
                output.columns[path].append((rule.bus, column))
        output.filters |= dict.fromkeys((rule.bus, path) for path in pattern_fields(rule))

    def _inputs(self, bus: str) -> list[InputDataset]:
        names = self._buses[bus]
        facets: dict[str, Any] = {}
        if fields := _schema_fields(self._schemas[bus]):
            facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=fields)
        counts: dict[str, Any] = {}
        if len(names) == 1:  # the rows are those of the bus, whatever its topics
            facet = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(rowCount=self._read[bus])
            counts["inputStatistics"] = facet
        return [
            InputDataset(namespace=name.namespace, name=name.name, facets=facets, inputFacets=counts) for name in names
        ]

    def _output(self, name: DatasetName, output: _Output) -> OutputDataset:
        facets: dict[str, Any] = {}
        if output.columns:
            columns = {
                path: column_lineage_dataset.Fields(
                    inputFields=[each for bus, column in found for each in self._copied(bus, column)]
                )
                for path, found in output.columns.items()
            }
            filters = [each for bus, path in output.filters for each in self._fields(bus, path, _FILTER)]
            facets["columnLineage"] = column_lineage_dataset.ColumnLineageDatasetFacet(fields=columns, dataset=filters)
        facet = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=output.rows, size=output.size
        )
        return OutputDataset(
            namespace=name.namespace, name=name.name, facets=facets, outputFacets={"outputStatistics": facet}
        )

    def _copied(self, bus: str, column: Column) -> Iterable[column_lineage_dataset.InputField]:
        subtype = "IDENTITY" if column.is_copy else "TRANSFORMATION"
        how = column_lineage_dataset.Transformation(type="DIRECT", subtype=subtype, masking=column.is_masked)
        for path in column.fields:
            yield from self._fields(bus, path, how)

    def _fields(
        self, bus: str, path: str, how: column_lineage_dataset.Transformation
    ) -> Iterable[column_lineage_dataset.InputField]:
        for name in self._buses[bus]:
            yield column_lineage_dataset.InputField(
                namespace=name.namespace, name=name.name, field=path, transformations=[how]
            )


_FILTER: Final = column_lineage_dataset.Transformation(type="INDIRECT", subtype="FILTER", masking=False)


def _schema_fields(schemas: Iterable[EventSchema]) -> list[schema_dataset.SchemaDatasetFacetFields]:
    """Return the fields of the events of all types, with the types that their values have."""
    types: dict[str, dict[str, None]] = defaultdict(dict)
    for schema in schemas:
        for path, known in schema.fields.items():
            types[path] |= dict.fromkeys(known.types)
    return [
        schema_dataset.SchemaDatasetFacetFields(name=path, type=" or ".join(found) or None)
        for path, found in sorted(types.items())
    ]
