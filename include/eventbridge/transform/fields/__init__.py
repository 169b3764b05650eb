"""Renders the FIELDS form, whose steps change an event one by one, as docs/reference/transforms.md describes."""

from eventbridge.transform.fields.changed import FieldsRenderer
from eventbridge.transform.fields.read import OPERATIONS, read_steps

__all__ = ["OPERATIONS", "FieldsRenderer", "read_steps"]
