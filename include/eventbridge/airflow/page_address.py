"""The address of a part of the page within Airflow, which frames it."""

from __future__ import annotations

from urllib.parse import urlsplit

from airflow.configuration import conf


def page_path(path: str) -> str:
    """Return the path within Airflow of a part of the page, such as `batches/ID`."""
    base = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")
    return f"{base}/plugin/eventbridge{base}/eventbridge/page/{path}"


def page_address(path: str) -> str:
    """Return the same with scheme and host, if Airflow's `[api] base_url` has them; for log lines."""
    url = urlsplit(conf.get("api", "base_url", fallback=""))
    return f"{url.scheme}://{url.netloc}{page_path(path)}" if url.netloc else page_path(path)
