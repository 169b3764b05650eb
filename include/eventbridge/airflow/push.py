"""The operator of a mapped push, which delivers one chunk of a batch within a time budget."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import urlencode

from airflow.sdk import BaseOperator, BaseOperatorLink, Context

from eventbridge.airflow.names import PUSH
from eventbridge.airflow.sentences import page_path
from eventbridge.airflow.settings import configured_settings
from eventbridge.airflow.tasks import plain_failures
from eventbridge.config.settings import Settings
from eventbridge.errors import EventBridgeError
from eventbridge.model.chunk import SLOW_LANE_POOL, SLOW_LANE_WEIGHT
from eventbridge.runtime.stop import Stop

if TYPE_CHECKING:
    from eventbridge.delivery.push import PushReport
    from eventbridge.model.chunk import Chunk

#: The time beyond its budget that a push may take to open the ledger, read the chunk, and receive the last responses.
_LIMIT_BEYOND_BUDGET_SECONDS = 30.0


class PushOperator(BaseOperator):
    """Delivers one chunk. `batch_id` is templated; if it is "", the task does nothing.

    It is an operator and not a decorated function because only an operator has `on_kill`. Without that method, SIGTERM
    from Airflow would have no effect, and SIGKILL follows 5 s later. In these 5 s the push waits for responses and
    records its attempts.
    """

    template_fields: Sequence[str] = ("batch_id",)
    ui_color = "#d9ead3"

    def __init__(self, *, batch_id: str, chunk_id: int, **options: Any) -> None:
        super().__init__(**options)
        self.batch_id = batch_id
        self.chunk_id = chunk_id
        self._stop: Stop | None = None
        self._killed = False
        self._report: PushReport | None = None

    @cached_property
    def chunk_name(self) -> str:
        """Return the name of this push in Airflow's lists: the first rule and target of its chunk, "" without a batch.

        Airflow reads it before and after the push. If the ledger does not respond, the name is the chunk's number, and
        the push itself raises the error.
        """
        if not self.batch_id:
            return ""
        from eventbridge.ledger import Ledger

        try:
            with closing(Ledger.open(configured_settings().ledger_url)) as ledger:
                return chunk_name(ledger.chunks.get(self.batch_id, self.chunk_id))
        except EventBridgeError as error:
            self.log.warning("chunk %s of batch %s has no name: %s", self.chunk_id, self.batch_id, error)
            return f"chunk {self.chunk_id}"

    def execute(self, context: Context) -> None:
        """Deliver the chunk. Fails if a target cannot be opened, or if the ledger or the store cannot be reached."""
        from eventbridge.airflow import sentences
        from eventbridge.airflow.tasks import log_report, stage
        from eventbridge.delivery.push import push

        if not self.batch_id:
            self.log.info("nothing to send: this run has no batch")
            return
        self._stop = task_stop()
        with plain_failures(), stage() as runtime:
            self._report = push(runtime, self.batch_id, self.chunk_id, self._stop)
            log_report(sentences.push_report(runtime, self._report, self.batch_id, self.chunk_id))
        if self._killed:
            self.log.warning("Airflow stopped the push; deliveries that were not sent become pending")

    def get_openlineage_facets_on_complete(self, _: Any) -> Any:
        """Return the lineage of the push. Only OpenLineage's provider calls this, after the push has ended."""
        from eventbridge.airflow.lineage import push_lineage

        return push_lineage(self.batch_id, self.chunk_id, self._report)

    def on_kill(self) -> None:
        """Request that the push stops. It records its attempts first."""
        if self._stop is not None:
            self._killed = True  # logged after the push has stopped, because this call may interrupt a write to the log
            self._stop.set()


def chunk_name(chunk: Chunk) -> str:
    """Return `<rule>/<target>` of a chunk or, if the chunk has several, the first one and the number of the others."""
    targets = list(dict.fromkeys(f"{piece.rule}/{piece.target}" for piece in chunk.pieces))
    more = f" and {len(targets) - 1} more" if len(targets) > 1 else ""
    return f"{targets[0]}{more}" if targets else ""


def pushes(batch_id: str, **options: Any) -> Any:
    """Return the partial mapped push of a batch, to be expanded over `chunk_id`.

    Airflow ends a push that is still running half a minute after its budget. Airflow never retries a push, because a
    retry batch sends exactly the deliveries that are still undelivered, and sooner.
    """
    return PushOperator.partial(
        task_id=PUSH,
        map_index_template="{{ task.chunk_name }}",
        batch_id=batch_id,
        retries=0,
        weight_rule="absolute",
        do_xcom_push=False,
        execution_timeout=push_limit(configured_settings()),
        **options,
    )


def push_limit(settings: Settings) -> timedelta:
    """Return the `execution_timeout` of a push. A push normally stops earlier, at the end of its budget."""
    return timedelta(seconds=settings.push_timeout + _LIMIT_BEYOND_BUDGET_SECONDS)


def slow_lane_pushes(batch_id: str) -> Any:
    """Return the partial mapped push of a retry or redrive batch, whose pushes share a pool and have a low weight."""
    return pushes(batch_id, pool=SLOW_LANE_POOL, priority_weight=SLOW_LANE_WEIGHT)


#: The maximum wait for responses after SIGTERM. Airflow sends SIGKILL after 5 s, because its Task SDK does not read
#: `killed_task_cleanup_time`. The rest of the 5 s is for recording the responses.
_RESPONSES_SECONDS: Final = 2.5


def task_stop() -> Stop:
    """Return the stop of a task that sends. After it is set, the task waits at most 2.5 s for outstanding responses."""
    return Stop(_RESPONSES_SECONDS)


class ChunkLink(BaseOperatorLink):
    """The link *Deliveries of this chunk* on each push. It also works before the push has run."""

    name = "Deliveries of this chunk"
    operators: ClassVar[list[type[BaseOperator]]] = [PushOperator]

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """Return the address of the page on which Airflow shows the chunk."""
        push = {"dag": ti_key.dag_id, "run": ti_key.run_id, "map": ti_key.map_index}
        return page_path(f"chunk?{urlencode(push)}")
