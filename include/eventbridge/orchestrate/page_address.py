"""Where a part of the page is in Airflow, which has the frame around it."""

from __future__ import annotations

from urllib.parse import urlsplit

from airflow.configuration import conf


def page_path(path: str) -> str:
    """Return the path within Airflow of a part of the page, such as `batches/ID`."""
    base = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")
    return f"{base}/plugin/eventbridge{base}/eventbridge/page/{path}"


def page_address(path: str) -> str:
    """Return the same with scheme and host, if `[api] base_url` of Airflow's configuration says them: for a log."""
    url = urlsplit(conf.get("api", "base_url", fallback=""))
    return f"{url.scheme}://{url.netloc}{page_path(path)}" if url.netloc else page_path(path)
