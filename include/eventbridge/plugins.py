"""What a plug-in needs: import everything from here. docs/howto/write-a-plug-in.md shows how.

A plug-in is a package with entry points in the groups `eventbridge.sources`, `eventbridge.targets` and
`eventbridge.transforms`. Each is named after its type and refers to a `SourceType`, `TargetType` or `TransformType`: a
name, a pydantic model of the settings, and a function that opens the type for a bus or target.
"""

from eventbridge.config.connection import Connection
from eventbridge.config.setting_types import Seconds, Size
from eventbridge.rules.model import QueueFields as SourceFields
from eventbridge.rules.model import Target as TargetFields
from eventbridge.rules.types import SourceType, TargetType, TransformType
from eventbridge.sources.open import SourceSetup
from eventbridge.sources.plug_in import Message, Receiver
from eventbridge.targets.open import TargetSetup
from eventbridge.targets.plug_in import Result, Sender, SpanSender
from eventbridge.targets.protocol import DeliverySpan, Request

__all__ = [
    "Connection",
    "DeliverySpan",
    "Message",
    "Receiver",
    "Request",
    "Result",
    "Seconds",
    "Sender",
    "Size",
    "SourceFields",
    "SourceSetup",
    "SourceType",
    "SpanSender",
    "TargetFields",
    "TargetSetup",
    "TargetType",
    "TransformType",
]
