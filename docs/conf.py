"""How `make docs` builds the site: Sphinx reads the project's own pages, with MyST, as they stand in the checkout.

The root of the project is the root of the pages, so that links between them are the relative ones that a code host
follows as well.  What stands in the navigation, and in which order, is said by the lists of docs/index.md alone.
"""

import re
from posixpath import normpath

from sphinx.application import Sphinx

import rmqstore

project = "rmqstore"
author = "the rmqstore authors"
project_copyright = author
release = version = rmqstore.__version__
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_click"]
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "examples/README.md",
    "notebooks/*.md",
    "rmqstore/README.md",
]
exclude_patterns = [".*", "build", "dist", "tests", "jobs"]

myst_heading_anchors = 3
highlight_language = "text"

# A docstring names code in single backticks; it is reStructuredText otherwise.
default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True, "undoc-members": False}
python_use_unqualified_type_names = True
add_module_names = False
maximum_signature_line_length = 80

# Two hyphens begin an option, and quotes belong to a shell: nothing is made a dash or a curly quote.
smartquotes = False

html_theme = "furo"
html_title = f"rmqstore {release}"
html_extra_path = ["site"]
html_static_path = ["static"]
html_css_files = ["tables.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": False}

_LISTED = re.compile(r"^- \[([^\]]+)\]\(([^)#]+)\)", re.MULTILINE)


def navigation(text: str, pages: set[str]) -> str:
    """Tables of contents, hidden, made of the lists of the first page: one for each of its headings.

    Of the other `pages`, names without ending from the root of the project on, those that no list names stand last.
    """
    parts, listed = [], {root_doc}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        caption, _, body = section.partition("\n")
        found = _LISTED.findall(body)
        listed |= {normpath(f"docs/{page}").removesuffix(".md") for _, page in found}
        parts.append((caption, [f"{title} <{page}>" for title, page in found]))
    parts.append(("More", [f"/{page}" for page in sorted(pages - listed)]))
    tables = [
        "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *lines, "```"])
        for caption, lines in parts
        if lines
    ]
    return "\n\n".join(tables)


def _with_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    if page == root_doc:
        source[0] += "\n" + navigation(source[0], app.env.found_docs)


# Code in a docstring stands indented after a colon, as people read it; reStructuredText wants two of them.
_CODE_AFTER_COLON = re.compile(r"(?<!:):(?=\n\n {4})")


def _with_code(_app: Sphinx, _kind: str, _name: str, _object: object, _options: object, lines: list[str]) -> None:
    lines[:] = _CODE_AFTER_COLON.sub("::", "\n".join(lines)).split("\n")


def _as_typed(_app: Sphinx, _context: object, lines: list[str]) -> None:
    """A backslash in the text of an option, such as that of a line's end, is meant."""
    lines[:] = [line.replace("\\", "\\\\") for line in lines]


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("sphinx-click-process-options", _as_typed)
    app.connect("autodoc-process-docstring", _with_code)
    app.connect("source-read", _with_navigation)
