"""Implements the entry point `apache_airflow_provider`: connection types, and a section of Airflow's configuration.

Airflow shows the provider under Admin > Providers. The hook classes are named here, but not imported.
"""

from __future__ import annotations

from typing import Any

from pydantic.fields import FieldInfo

from eventbridge.config.settings import Settings
from eventbridge.version import DISTRIBUTION, __version__

#: Settings that may contain a credential. Airflow masks them, and can also read them from a command or a secrets
#: backend.
_SENSITIVE = frozenset({"ledger_url", "store_uri", "spark_remote"})

_TEXT = {"type": ["string", "null"]}
_FLAG = {"type": ["boolean", "null"]}
_SECRET = {"type": ["string", "null"], "format": "password"}
_SECRET_LINES = {"type": ["string", "null"], "format": "multiline"}


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata."""
    return {
        "package-name": DISTRIBUTION,
        "name": "EventBridge",
        "description": "Delivers bus events to targets as rules define, at least once, with every event accounted for.",
        "versions": [__version__],
        "connection-types": [_target(), _store(), _bus()],
        "config": {
            "eventbridge": {
                "description": "EventBridge. An environment variable EVENTBRIDGE_<NAME> overrides an option here.",
                "options": {name: _option(name, field) for name, field in Settings.model_fields.items()},
            }
        },
    }


def _option(name: str, field: FieldInfo) -> dict[str, Any]:
    unit = field.json_schema_extra["unit"] if isinstance(field.json_schema_extra, dict) else ""
    option: dict[str, Any] = {
        "description": f"{field.description} In {unit}.",
        "version_added": "0.3.0",
        "type": "string",  # sizes and durations have units: 64MiB, 1m
        "example": None,
        # A default that depends on other settings is not listed.
        "default": _format_default(field.default) if field.default_factory is None else None,
    }
    return option | {"sensitive": True} if name in _SENSITIVE else option


def _format_default(default: object) -> str | None:
    if default is None or default == ():
        return None
    return str(int(default)) if isinstance(default, float) and default.is_integer() else str(default)


def _target() -> dict[str, Any]:
    return {
        "connection-type": "eventbridge_target",
        "hook-name": "EventBridge target",
        "hook-class-name": "eventbridge.airflow.hooks.TargetHook",
        "ui-field-behaviour": {
            "hidden-fields": ["schema", "extra"],
            "relabeling": {"host": "Host, with https://", "login": "Login or client id"},
            "placeholders": {"host": "https://crm.example", "port": "443"},
        },
        "conn-fields": {
            "signing_secret": _field(
                "Signing secret", "Signs deliveries: whsec_... (HMAC) or whsk_... (ed25519)", _SECRET
            ),
            "token": _field("Bearer token", "Sent as `authorization: Bearer ...`", _SECRET),
            "api_key": _field(
                "API key", "Sent in the `x-api-key` header, unless one of the next two fields is set", _SECRET
            ),
            "api_key_header": _field("Header of the API key", "Such as `x-key`", _TEXT),
            "api_key_query": _field("Parameter of the API key", "Sent in the URL under this name", _TEXT),
            "token_url": _field("Token endpoint", "OAuth2 client credentials: https://login.example/token", _TEXT),
            "scope": _field("Scope", "Requested from the token endpoint", _TEXT),
            "audience": _field("Audience", "Requested from the token endpoint", _TEXT),
            "client_secret_in": _field(
                "Client secret in",
                "How it is sent to the token endpoint; default: header",
                {"type": ["string", "null"], "enum": ["header", "body"]},
            ),
            "ca_certificate": _field("CA certificate", "PEM, or the path of a file", _SECRET_LINES),
            "client_certificate": _field("Client certificate", "mTLS: PEM, or the path of a file", _SECRET_LINES),
            "private_key": _field("Private key", "mTLS: PEM, or the path of a file", _SECRET_LINES),
            "private_key_password": _field("Password of the private key", "Decrypts the private key", _SECRET),
            "any_host": _field("Any host", "Rule files may send this connection's credentials to any host", _FLAG),
            "secret_url": _field("Secret URL", "The target's URL, if the URL is a secret itself", _SECRET),
        },
    }


def _store() -> dict[str, Any]:
    return {
        "connection-type": "eventbridge_store",
        "hook-name": "EventBridge store",
        "hook-class-name": "eventbridge.airflow.hooks.StoreHook",
        "ui-field-behaviour": {
            "hidden-fields": ["host", "port", "schema", "extra"],
            "relabeling": {"login": "Access key", "password": "Secret key"},
            "placeholders": {"login": "empty: AWS's default credentials"},
        },
        "conn-fields": {
            "region_name": _field("Region", "Such as eu-central-1", _TEXT),
            "endpoint_url": _field("Endpoint", "Only for a server other than Amazon S3: https://host:port", _TEXT),
            "profile_name": _field("Profile", "A profile of the AWS configuration", _TEXT),
            "aws_session_token": _field("Session token", "Only for temporary credentials", _SECRET),
            "encryption": _field("Encryption", "At rest", {"type": ["string", "null"], "enum": ["AES256", "aws:kms"]}),
            "kms_key_id": _field("KMS key", "Only for the encryption aws:kms", _TEXT),
        },
    }


def _bus() -> dict[str, Any]:
    return {
        "connection-type": "eventbridge_bus",
        "hook-name": "EventBridge bus",
        "hook-class-name": "eventbridge.airflow.publish.EventBridgeHook",
        "ui-field-behaviour": {
            "hidden-fields": ["host", "port", "login", "password", "extra"],
            "relabeling": {"schema": "Bus"},
            "placeholders": {"schema": "a bus of the rule files"},
        },
        "conn-fields": {"topic": _field("Topic", "Empty: the first topic of the bus", _TEXT)},
    }


def _field(label: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": schema}
