"""Provides endpoint, credentials and encryption for S3, from a connection or AWS's default chain."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from eventbridge.config.connection import Connection, require_type
from eventbridge.errors import ConnectionUnusable

#: The maximum number of attempts of a request, with random waits of up to 1, 2, 4, 8 and 16 s between them.
ATTEMPTS = 6

_TYPES = ("aws", "eventbridge_store")
_EXTRAS = {"region_name", "endpoint_url", "aws_session_token", "profile_name", "encryption", "kms_key_id"}
_ENCRYPTIONS = {"": "", "AES256": "AES256", "aws:kms": "aws:kms"}
_REGION = "us-east-1"


@dataclass(frozen=True)
class S3Access:
    """Endpoint, credentials and encryption; AWS's default chain (environment, profile, role) fills empty fields.

    Its repr never shows credentials.
    """

    region: str = ""
    endpoint: str = ""
    profile: str = ""
    encryption: str = ""
    kms_key: str = ""
    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)

    @classmethod
    def from_connection(cls, connection: Connection) -> S3Access:
        """Read a connection of type `eventbridge_store` or `aws`. Raises ConnectionUnusable if it cannot be used."""

        def unusable(why: str) -> ConnectionUnusable:
            return ConnectionUnusable(f"Connection {connection.id!r} cannot be used for S3: {why}")

        require_type(connection, _TYPES, "S3 or SQS")
        unknown = sorted(set(connection.extra) - _EXTRAS)
        if unknown:
            known = ", ".join(sorted(_EXTRAS))
            raise unusable(
                f"its extra {unknown[0]!r} is unknown. Known extras: {known}. "
                "To assume a role, configure it in an AWS profile and set profile_name."
            )
        texts = {name: str(value) for name, value in connection.extra.items()}
        if bool(connection.login) != bool(connection.password):
            raise unusable("it has only one of login (access key) and password (secret key). Set both or neither.")
        for name, secret in (("login", connection.login), ("password", connection.password)):
            if any(char.isspace() or not char.isprintable() for char in secret):
                raise unusable(f"its {name} contains white space. Copy the key again.")
        if texts.get("encryption", "") not in _ENCRYPTIONS:
            raise unusable("its encryption is neither AES256 nor aws:kms.")
        if texts.get("kms_key_id") and texts.get("encryption") != "aws:kms":
            raise unusable("kms_key_id needs encryption=aws:kms.")
        endpoint = texts.get("endpoint_url", "").rstrip("/")
        if endpoint and not _is_endpoint(endpoint):
            raise unusable("its endpoint_url is not a URL such as https://host:port, without a path or credentials.")
        return cls(
            region=texts.get("region_name", ""),
            endpoint=endpoint,
            profile=texts.get("profile_name", ""),
            encryption=texts.get("encryption", ""),
            kms_key=texts.get("kms_key_id", ""),
            access_key=connection.login,
            secret_key=connection.password,
            session_token=texts.get("aws_session_token", ""),
        )

    def write_options(self) -> dict[str, str]:
        """Return the parameters of a request that select the encryption."""
        options = {"ServerSideEncryption": self.encryption, "SSEKMSKeyId": self.kms_key}
        return {name: value for name, value in options.items() if value}


class S3Clients:
    """boto3's client and, created on first use, pyarrow's file system with the same credentials.

    boto3 renews credentials that expire; `files` then creates the file system again.
    """

    def __init__(self, access: S3Access, attempts: int = ATTEMPTS, read_seconds: float = 60) -> None:
        import boto3
        from botocore.config import Config

        self.access = access
        self._session = boto3.session.Session(
            aws_access_key_id=access.access_key or None,
            aws_secret_access_key=access.secret_key or None,
            aws_session_token=access.session_token or None,
            region_name=access.region or None,
            profile_name=access.profile or None,
        )
        own = bool(access.endpoint)
        self.boto = self._session.client(
            "s3",
            region_name=self._session.region_name or _REGION,
            endpoint_url=access.endpoint or None,
            config=Config(
                signature_version="s3v4",
                retries={"mode": "standard", "total_max_attempts": attempts},  # random waits (jitter)
                connect_timeout=min(5, read_seconds),
                read_timeout=read_seconds,
                max_pool_connections=32,
                s3={"addressing_style": "path" if own else "auto"},
                # not every S3 server supports these checksums
                request_checksum_calculation="when_required" if own else "when_supported",
                response_checksum_validation="when_required" if own else "when_supported",
            ),
        )
        self._files: Any = None
        self._files_credentials: object = None

    @property
    def endpoint(self) -> str:
        """Return the endpoint, for messages."""
        return str(self.boto.meta.endpoint_url)

    def files(self) -> Any:
        """Return pyarrow's S3FileSystem. Raises botocore's NoCredentialsError if there are none."""
        from botocore.exceptions import NoCredentialsError
        from pyarrow import fs

        credentials = self._session.get_credentials()
        if credentials is None:
            raise NoCredentialsError
        frozen = credentials.get_frozen_credentials()
        if self._files is None or self._files_credentials != frozen:
            url = urlsplit(self.endpoint)
            elsewhere = self.access.endpoint or not (url.hostname or "").endswith(
                (".amazonaws.com", ".amazonaws.com.cn")
            )
            self._files = fs.S3FileSystem(
                access_key=frozen.access_key,
                secret_key=frozen.secret_key,
                session_token=frozen.token,
                region=self.boto.meta.region_name,
                scheme=url.scheme,
                endpoint_override=url.netloc if elsewhere else None,
                allow_delayed_open=True,  # so that a small file is written by one put
                connect_timeout=5,
                request_timeout=60,
                retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1),  # the store retries
                tls_ca_file_path=os.environ.get("AWS_CA_BUNDLE"),  # as boto3 does
            )
            self._files_credentials = frozen
        return self._files

    def object_store_options(self, read_seconds: float) -> dict[str, str]:
        """Return the options of Rust's object_store for the same endpoint and credentials, as they are now.

        Raises botocore's NoCredentialsError if there are none. All of them are set, because object_store reads those
        that are missing from the environment.
        """
        from botocore.exceptions import NoCredentialsError

        credentials = self._session.get_credentials()
        if credentials is None:
            raise NoCredentialsError
        frozen = credentials.get_frozen_credentials()
        options = {
            "aws_access_key_id": frozen.access_key,
            "aws_secret_access_key": frozen.secret_key,
            "aws_session_token": frozen.token or "",
            "aws_region": self.boto.meta.region_name,
            "aws_endpoint": self.endpoint,
            "aws_virtual_hosted_style_request": "false",
            "aws_conditional_put": "etag",
            "aws_s3_allow_unsafe_rename": "false",
            "aws_server_side_encryption": self.access.encryption,
            "aws_sse_kms_key_id": self.access.kms_key,
            "allow_http": str(self.endpoint.startswith("http://")).lower(),
            "connect_timeout": "5s",
            "timeout": f"{read_seconds:g}s",
            "max_retries": "2",
            "retry_timeout": f"{read_seconds:g}s",
        }
        return {name: value for name, value in options.items() if value}


def _is_endpoint(text: str) -> bool:
    try:
        url = urlsplit(text)
        port_is_valid = url.port is None or url.port > 0
    except ValueError:
        return False
    bare = not (url.path or url.query or url.fragment or url.username or url.password)
    return url.scheme in ("http", "https") and bool(url.hostname) and port_is_valid and bare
