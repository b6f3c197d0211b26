"""The templates of the page: what is put into them is escaped, unless a template made it. Knows no page and no plot.

What a template does not find is an error, not an empty place.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("analysis.report", "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True)
    made.filters["tenth"] = "{:.1f}".format
    return made


def page(template: str, **values: Any) -> str:
    """A file made of a whole template."""
    return _environment().get_template(template).render(values)


def part(template: str, macro: str, **values: Any) -> Markup:
    """Render one macro of a template with ``values``, to be put into a page."""
    made = getattr(_environment().get_template(template).module, macro)(**values)
    assert isinstance(made, Markup), "it is escaped"
    return made
