"""Adapts pages of the repository to the documentation site that `make docs` builds."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
#: Documents that belong to the top level of the repository, and their pages on the site.
TOP_LEVEL = {
    "GLOSSARY.md": "reference/glossary.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing/index.md",
    "CODE_OF_CONDUCT.md": "contributing/code-of-conduct.md",
    "SECURITY.md": "contributing/security-policy.md",
}
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"^( *```\w+) [a-z ]+$", re.MULTILINE)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the documents of the top level to the site."""
    from mkdocs.structure.files import File

    for document, page in TOP_LEVEL.items():
        files.append(File.generated(config, page, content=(ROOT / document).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Return a page whose links lead to pages of the site; a file of the source code becomes its path."""
    sources = {page: document for document, page in TOP_LEVEL.items()}
    source = sources.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    folder = posixpath.dirname(page.file.src_uri)

    def adapted(link: re.Match[str]) -> str:
        label, path, anchor = link[1], link[2], link[3] or ""
        if "://" in path:
            return link[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if target.startswith("docs/"):
            return f"[{label}]({posixpath.relpath(target.removeprefix('docs/'), folder)}{anchor})"
        if target in TOP_LEVEL:
            return f"[{label}]({posixpath.relpath(TOP_LEVEL[target], folder)}{anchor})"
        if not (ROOT / target).exists():
            raise ValueError(f"{source}: there is no {target}")
        return f"`{target}`"

    # A fence's second word says how tests run it; Markdown knows the first one only.
    return _LINK.sub(adapted, _FENCE.sub(r"\1", markdown))
