"""Converts a delivery to a message of RocketMQ."""

from __future__ import annotations

from urllib.parse import unquote

from eventbridge.clients.rocketmq.remoting.messages import OutgoingMessage
from eventbridge.targets.protocol import Request


def message_of(request: Request, tag: str) -> OutgoingMessage:
    """Return the message: its key is the delivery id, its properties are headers, CloudEvents named as in its SDK."""
    properties = {"KEYS": request.delivery_id}
    if request.content_type:
        properties["CE_contenttype"] = request.content_type
    if tag:
        properties["TAGS"] = tag
    if request.order_key is not None:
        properties["__SHARDINGKEY"] = request.order_key
    for name, value in request.headers.items():
        if name.lower().startswith("ce-"):
            properties[f"CE_{name[3:]}"] = unquote(value)  # escaping is for HTTP only
        else:
            properties[name] = value
    return OutgoingMessage(request.payload, properties)
