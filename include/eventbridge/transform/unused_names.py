"""Names under a template's `value` that the template does not insert, and how it writes them instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from eventbridge.errors import TransformError
from eventbridge.transform.error import error_at, member
from eventbridge.transform.template import Template, parse_template, place


def unused_names(names: Iterable[str], text: str, template: Template) -> Iterator[TransformError]:
    """Yield an error for each name that has no placeholder `${name}` in the template, in the order of `names`.

    A name that stands in the template as another template language writes it, such as `<name>` or `{{name}}`, is
    reported there.
    """
    inserted = {placeholder.name for placeholder in template.placeholders()}
    return (_unused(name, text) for name in names if name not in inserted)


def is_right_with_placeholders(names: Iterable[str], text: str) -> bool:
    """Return whether a template is right once `${name}` replaces what other languages write for these names."""
    for name in names:
        text = _of_others(name).sub(f"${{{name}}}", text)
    return not parse_template(text)[1]


def _unused(name: str, text: str) -> TransformError:
    if found := _of_others(name).search(text):
        message = f"{found[0]} at {place(text, found.start())} is plain text, and inserts no value"
        return error_at("$.template", message, text, f"Write ${{{name}}} instead of {found[0]}")
    remedy = f"Write ${{{name}}} where its value belongs, or remove the name"
    return error_at(member("$.value", name), f"the template inserts no ${{{name}}}", name, remedy)


def _of_others(name: str) -> re.Pattern[str]:
    exact = re.escape(name)
    return re.compile(
        rf"<\s*{exact}\s*>|\{{\{{\s*{exact}\s*\}}\}}|\$\$\{{{exact}\}}|\$\({exact}\)|%{exact}%|(?<!\$)\{{{exact}\}}"
        rf"|\${exact}(?![\w.-])"
    )
