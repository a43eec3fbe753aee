"""The web book, by Sphinx: `make book` builds it from the committed notebooks, without running them, in `build/book/`.

It works offline: formulas are rendered by the MathJax that comes with it, search runs in the page.
"""

import re

from docutils import nodes

project = "gpvi, an executable paper"
author = copyright = "The gpvi authors"
root_doc = "README"
extensions = ["myst_nb", "sphinx_external_toc", "sphinx_copybutton", "sphinx-mathjax-offline"]
external_toc_path = "docs/toc.yml"
external_toc_exclude_missing = True  # whatever is not in the table of contents is not in the book

exclude_patterns = [
    f"{folder}/**" for folder in (".git", ".venv", ".pytest_cache", ".ruff_cache", ".mypy_cache", "build", "data")
]

nb_execution_mode = "off"
nb_merge_streams = True
nb_render_markdown_format = "myst"  # what a cell prints as Markdown has tables, which plain CommonMark has not
myst_enable_extensions = ["amsmath", "dollarmath"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header", "mystnb.unknown_mime_type"]

html_theme = "sphinx_book_theme"
html_context = {"default_mode": "auto"}
html_title = project
html_theme_options = {"show_navbar_depth": 1, "use_download_button": True, "use_fullscreen_button": True}
html_show_search_summary = False  # summaries are fetched, which a browser refuses to pages opened as files
html_static_path = ["static"]
html_css_files = ["book.css"]


def describe_figures(app, doctree) -> None:
    """A figure that a cell drew is described by its caption: the next paragraph of "Figure:" or "Figure 18.1:"."""
    following = ""
    for node in reversed(list(doctree.findall(lambda n: isinstance(n, (nodes.image, nodes.paragraph))))):
        if isinstance(node, nodes.image):
            node.setdefault("alt", following)
        elif caption := re.match(r"Figure( \d+\.\d+)?[:.]", node.astext()):
            following = " ".join(node.astext()[caption.end() :].split())


def setup(app) -> None:
    """Sphinx calls this."""
    app.connect("doctree-read", describe_figures)
