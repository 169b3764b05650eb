"""Statements about dead letters that are delivered again."""

from __future__ import annotations

from sqlalchemy import bindparam, select, update

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.tables import redrive, redriven
from eventbridge.model.redelivery import RECORDED

_REDRIVE = redrive.c.redrive_id == bindparam("of_redrive")
_RUNNING = redrive.c.state == "running"

#: Adds a redrive, unless its run has one.
BEGIN_REDRIVE = insert_or_skip(redrive)

#: The redrive of a run.
REDRIVE_OF_RUN = select(redrive).where(redrive.c.run == bindparam("of_run"))

#: One redrive.
REDRIVE = select(redrive).where(_REDRIVE)

#: All redrives, newest first.
REDRIVES = select(redrive).order_by(redrive.c.started_at.desc(), redrive.c.redrive_id)

#: The redrives that a server without Airflow recorded and that have not ended, the oldest first.
RECORDED_REDRIVES = (
    select(redrive)
    .where(_RUNNING, redrive.c.run.startswith(RECORDED, autoescape=True))
    .order_by(redrive.c.started_at, redrive.c.redrive_id)
)

#: Sets when the next batch of a running redrive may be planned; changes nothing once it has ended.
GO_ON = update(redrive).where(_REDRIVE, _RUNNING).values(next_at=bindparam("at", type_=UtcTime))

#: Ends a running redrive.
END_REDRIVE = (
    update(redrive).where(_REDRIVE, _RUNNING).values(state=bindparam("to"), ended_at=bindparam("now", type_=UtcTime))
)

#: Records the rows of a file that a batch takes, unless another batch has had this turn.
TAKE_DEAD_LETTERS = insert_or_skip(redriven)

#: The rows taken from all files.
REDRIVEN = select(redriven).order_by(redriven.c.file, redriven.c.turn)

#: The rows that a batch took.
REDRIVEN_BY = REDRIVEN.where(redriven.c.batch_id == bindparam("of_batch"))

#: The rows taken from one file.
REDRIVEN_OF = REDRIVEN.where(redriven.c.file == bindparam("of_file"))
