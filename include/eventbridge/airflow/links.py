"""The link from a push in Airflow to its deliveries on the page."""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import urlencode

from airflow.sdk import BaseOperator, BaseOperatorLink

from eventbridge.airflow.page_address import page_path
from eventbridge.airflow.push import PushOperator


class ChunkLink(BaseOperatorLink):
    """*Deliveries of this chunk*, on each push. It is built when it is shown, so it also works before the push runs."""

    name = "Deliveries of this chunk"
    operators: ClassVar[list[type[BaseOperator]]] = [PushOperator]

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """Return the address within Airflow, which frames the page."""
        push = {"dag": ti_key.dag_id, "run": ti_key.run_id, "map": ti_key.map_index}
        return page_path(f"chunk?{urlencode(push)}")
