"""Tests measures with Great Expectations, and renders the results as a Data Docs page."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from eventbridge.model.quality import Measure

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)


def run_suite(measures: Sequence[Measure], name: str) -> tuple[list[Measure], bytes]:
    """Return the measures outside their bounds according to Great Expectations, and its Data Docs page in HTML.

    Importing Great Expectations takes many CPU-seconds, so only the functions of this module do it.
    """
    import great_expectations as gx
    from great_expectations.data_context.types.base import (
        DataContextConfig,
        InMemoryStoreBackendDefaults,
        ProgressBarsConfig,
    )
    from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer
    from great_expectations.render.view.view import DefaultJinjaPageView

    config = DataContextConfig(
        store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False), analytics_enabled=False
    )
    context = gx.get_context(mode="ephemeral", project_config=config)
    context.variables.progress_bars = ProgressBarsConfig(globally=False, metric_calculations=False)
    frame = _frame(measures)
    suite = context.suites.add(gx.ExpectationSuite(name, expectations=_expectations(frame)))
    asset = context.data_sources.add_pandas("eventbridge").add_dataframe_asset("hour")
    batch = asset.add_batch_definition_whole_dataframe("hour")
    definition = context.validation_definitions.add(gx.ValidationDefinition(name=name, data=batch, suite=suite))
    result = definition.run(
        batch_parameters={"dataframe": frame},
        result_format={"result_format": "COMPLETE", "unexpected_index_column_names": ["subject"]},
    )
    page = DefaultJinjaPageView().render(ValidationResultsPageRenderer().render(result))  # type: ignore[no-untyped-call]
    return _failed_measures(measures, result), str(page).encode()


def _frame(measures: Sequence[Measure]) -> pd.DataFrame:
    """Return a row for each subject, with three columns for each measure: the value and both bounds."""
    import pandas as pd

    rows: dict[str, dict[str, float]] = {}
    for each in measures:
        row = rows.setdefault(_key(each), {})
        for column, value in (
            (each.name, each.value),
            (f"{each.name} at least", each.at_least),
            (f"{each.name} at most", each.at_most),
        ):
            row[column] = float("nan") if value is None else value
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("subject").reset_index()


def _key(measure: Measure) -> str:
    return f"{measure.subject.kind} {measure.subject}"


def _expectations(frame: pd.DataFrame) -> list[Any]:
    """Return at most two expectations for each measure: not below its lower bound, and not above its upper one."""
    from great_expectations.expectations.core.expect_column_pair_values_a_to_be_greater_than_b import (
        ExpectColumnPairValuesAToBeGreaterThanB,
    )

    found: list[Any] = []
    for column in frame.columns:
        name, _, end = column.partition(" at ")
        if end and frame[column].notna().any():
            larger, smaller = (name, column) if end == "least" else (column, name)
            found.append(
                ExpectColumnPairValuesAToBeGreaterThanB(
                    column_A=larger,
                    column_B=smaller,
                    or_equal=True,
                    ignore_row_if="either_value_is_missing",
                    meta={"measure": name},
                )
            )
    return found


def _failed_measures(measures: Sequence[Measure], result: Any) -> list[Measure]:
    """Return the measures that failed in a result. Raises RuntimeError if an expectation could not be evaluated."""
    named = set()
    for each in result.results:
        if (each.exception_info or {}).get("raised_exception"):
            raise RuntimeError(
                f"Great Expectations could not evaluate {each.expectation_config}: {each.exception_info}"
            )
        measure = each.expectation_config.meta["measure"]
        named |= {(row["subject"], measure) for row in each.result.get("unexpected_index_list") or ()}
    return [each for each in measures if (_key(each), each.name) in named]
