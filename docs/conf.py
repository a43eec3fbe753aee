"""The web book, by Sphinx: `make book` builds it from the committed notebooks, without running them, in `build/book/`.

It works offline: formulas are rendered by the MathJax that comes with it, search runs in the page. The reference comes
from the docstrings: its pages, `docs/reference/`, only name what they show. Its cover is README down to a mark,
and below that all figures, each with a link to the cell that drew it.
"""

import ast
import inspect
import json
import re
from functools import cache
from importlib import import_module
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import desc_sig_literal_string, download_reference
from sphinx.ext import autosummary
from sphinx.util.docutils import SphinxDirective

project = "gpvi, an executable paper"
author = copyright = "The gpvi authors"
root_doc = "README"
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_external_toc",
    "sphinx_copybutton",
    "sphinx-mathjax-offline",
]
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

autosummary.WELL_KNOWN_ABBREVIATIONS += ("eq.",)  # no end of a first sentence
autodoc_default_options = {"members": True, "member-order": "bysource", "exclude-members": "algorithm"}
autodoc_inherit_docstrings = False  # what only repeats its base class is described there, once
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_display_short_literal_types = True
maximum_signature_line_length = 80
napoleon_custom_sections = [("Attributes", "params_style")]
toc_object_entries_show_parents = "hide"
nitpicky = True  # a name that a docstring refers to has to be in the reference, or is someone else's
nitpick_ignore_regex = [("py:class", r"Tensor|(jaxtyping|torch|pyro|pathlib|collections\.abc)\..*|.*\.SomeSampler")]
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

html_theme = "sphinx_book_theme"
html_context = {"default_mode": "auto"}
html_title = project
html_theme_options = {
    "show_navbar_depth": 1,
    "use_download_button": True,
    "use_fullscreen_button": True,
    "navbar_persistent": [],  # a bar with a second search box
}
html_show_search_summary = False  # summaries are fetched, which a browser refuses to pages opened as files
html_static_path = ["static"]
html_css_files = ["book.css"]

ROOT = Path(__file__).parent.parent
FIGURES = ROOT / "figures" / "paper"
COVER_ENDS = "<!-- The cover of the web book ends here"


def make_cover(app, docname, source) -> None:
    """Of README the book shows what is above the mark: the rest has pages of its own. All figures follow."""
    if docname == root_doc:
        source[0] = source[0].partition(COVER_ENDS)[0] + "\n## All figures\n\n```{gallery}\n```\n"


class Gallery(SphinxDirective):
    """``{gallery}``: the committed figures of every notebook, each a link to the cell that drew it."""

    def run(self) -> list[nodes.Node]:
        """A container for each notebook that has figures."""
        return [self._of_notebook(path) for path in sorted(ROOT.glob("notebooks/*.ipynb")) if figures_of(path)]

    def _of_notebook(self, path: Path) -> nodes.Node:
        source = "".join(json.loads(path.read_text())["cells"][0]["source"])
        title = re.match(r"# (.*)", source)[1]
        page = f"notebooks/{path.stem}.html"
        heading = nodes.paragraph("", "", nodes.reference("", title, refuri=page), classes=["gallery-title"])
        figures = [self._figure(name, number, page) for name, number in figures_of(path).items()]
        return nodes.container("", heading, nodes.container("", *figures, classes=["gallery-row"]), classes=["gallery"])

    def _figure(self, name: str, number: str, page: str) -> nodes.Node:
        message = message_of(name)
        image = nodes.image(uri=f"figures/paper/{name}.png", alt=f"{message}: a figure of {page}", loading="lazy")
        parts = re.split(r"\$([^$]*)\$", f"{number} {message}".strip())
        words = [nodes.math(part, part) if at % 2 else nodes.Text(part) for at, part in enumerate(parts)]
        link = nodes.reference("", "", image, nodes.inline("", "", *words), refuri=f"{page}#figure-{name}")
        return nodes.paragraph("", "", link)


@cache
def figures_of(notebook: Path) -> dict[str, str]:
    """The committed figures of a notebook in its order, each with the number that its caption gives it."""
    sources = ["".join(cell["source"]) for cell in json.loads(notebook.read_text())["cells"]]
    names = [path.stem for path in FIGURES.glob(f"{notebook.stem.partition('-')[0]}-*.png")]
    drawn = {name: next((at for at, source in enumerate(sources) if f'"{name}"' in source), 0) for name in names}
    after = {name: "\n".join(sources[drawn[name] :]) for name in names}
    numbers = {name: re.search(r"\*Figure (\w+\.\d+)", after[name]) for name in names}
    return {name: found[1] if (found := numbers[name]) else "" for name in sorted(names, key=drawn.__getitem__)}


def message_of(name: str) -> str:
    """The title of a figure, or of its first panel that has one."""
    shown = json.loads((FIGURES / f"{name}.json").read_text())
    titles = [shown.get("title"), *(panel.get("title") for panel in shown["axes"])]
    return " ".join(next(filter(None, titles), name.partition("-")[2].replace("-", " ")).split())


def name_cells(app, doctree) -> None:
    """The cell that draws a figure gets the figure's name as an anchor, for the gallery."""
    for cell in doctree.findall(nodes.container):
        if "cell" in cell["classes"]:
            drawn = re.findall(r'"(\d\d\w?-[a-z0-9-]+)"', cell.astext())
            cell["ids"] += [f"figure-{name}" for name in dict.fromkeys(drawn) if (FIGURES / f"{name}.png").exists()]


def link_figures(app, doctree) -> None:
    """Where a page names a figure's file, the book leads to the cell that drew it instead of downloading it."""
    up = "../" * app.env.docname.count("/")
    pages = {
        name: f"notebooks/{path.stem}.html" for path in ROOT.glob("notebooks/*.ipynb") for name in figures_of(path)
    }
    for link in list(doctree.findall(download_reference)):
        folder, _, file = link["reftarget"].rpartition("figures/paper/")
        if folder.strip("./") == "" and (name := file.removesuffix(".png")) in pages:
            words = nodes.inline("", link.astext())
            link.replace_self(nodes.reference("", "", words, refuri=f"{up}{pages[name]}#figure-{name}"))


def describe_figures(app, doctree) -> None:
    """A figure that a cell drew is described by its caption: the next paragraph of "Figure:" or "Figure 18.1:"."""
    following = ""
    for node in reversed(list(doctree.findall(lambda n: isinstance(n, (nodes.image, nodes.paragraph))))):
        if isinstance(node, nodes.image):
            node.setdefault("alt", following)
        elif caption := re.match(r"Figure( \d+[a-z]?\.\d+)?[:.]", node.astext()):
            following = " ".join(node.astext()[caption.end() :].split())


def name_folded_cells(app, doctree) -> None:
    """A folded cell says what its code is for: what it shows or, where that is nothing, what it defines."""
    for cell in doctree.findall(nodes.container):
        if cell.get("hide_mode") == "input":
            purpose = purpose_of(cell)
            cell["prompt_show"], cell["prompt_hide"] = f"Show the code {purpose}", f"Hide the code {purpose}"


def purpose_of(cell: nodes.Element) -> str:
    """Words for what a cell of code is for."""
    code, *outputs = cell.children
    for kind, word in ((nodes.image, "figure"), (nodes.table, "table"), (nodes.raw, "animation")):
        if any(list(output.findall(kind)) for output in outputs):
            return f"of the {word} below"
    if outputs:
        return "of the lines below"
    body = ast.parse(code.astext()).body
    names = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    names = names or [
        n.id for node in body if isinstance(node, ast.Assign) for n in ast.walk(node.targets[0]) if hasattr(n, "id")
    ]
    if names:
        return f"that defines {', '.join(names[:3])}{', …' if len(names) > 3 else ''}"
    imports = any(isinstance(node, ast.Import | ast.ImportFrom) for node in body)
    return "that imports names" if imports else "that checks what was found"


def size_tables(app, doctree) -> None:
    """Small type for many columns, a box that scrolls for very many rows, room for sentences, `0.1 ± 0.2` in a line."""
    for table in doctree.findall(nodes.table):
        rows = [row.children for row in table.findall(nodes.row)]
        table["classes"] += ["many-columns"] * (len(rows[0]) > 7) + ["many-rows"] * (len(rows) > 60)
        for column in zip(*rows, strict=False):
            if max(len(entry.astext()) for entry in column) > 60:
                for entry in column:
                    entry["classes"].append("sentences")
            for entry in column:
                entry["classes"] += ["together"] * ("±" in entry.astext() and len(entry.astext()) < 20)


def keep_punctuation(app, doctree) -> None:
    """No line begins with the comma or the bracket that follows a formula."""
    for formula in list(doctree.findall(nodes.math)):
        following = formula.next_node(descend=False, siblings=True)
        if isinstance(following, nodes.Text) and (mark := re.match(r"[,.;:!?)’”-]+", following.astext())):
            rest = nodes.Text(following.astext()[mark.end() :])
            following.parent.replace(following, rest)
            formula.parent.replace(
                formula, nodes.inline("", "", formula.deepcopy(), nodes.Text(mark[0]), classes=["together"])
            )


def entry(name: str) -> str:
    """The directive of autodoc for what has this name."""
    module, _, last = name.rpartition(".")
    found = getattr(import_module(module), last)
    if not callable(found):
        value = "" if isinstance(found, int | float) else "   :no-value:\n"
        return f".. autodata:: {name}\n{value}"
    error = inspect.isclass(found) and issubclass(found, Exception)
    if inspect.isclass(found) and not error:
        return f".. autoclass:: {name}\n   :special-members: __call__\n"
    return f".. auto{'exception' if error else 'function'}:: {name}\n"


class Public(SphinxDirective):
    """``.. public::`` and names of ``gpvi_lib``: a table of their first sentences, then each with its members."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """The two parts, as autosummary and autodoc make them."""
        names = [f"gpvi_lib.{name}" for name in self.content if name]
        table = [
            ".. py:currentmodule:: None",
            "",
            ".. autosummary::",
            "   :nosignatures:",
            "",
            *(f"   ~{name}" for name in names),
            "",
        ]
        return self.parse_text_to_nodes("\n".join([*table, *map(entry, names)]))


def name_torch(app, what, name, found, options, signature, returned) -> tuple[str | None, str | None]:
    """In signatures PyTorch's own types keep its name: this library has a Generator and an Optimizer, too."""

    def named(text: str | None) -> str | None:
        text = text and re.sub(r"~torch\.(?:_C\.)?(Generator|dtype|device)\b", r"torch.\1", text)
        text = text and text.replace("~torch.nn.modules.module.Module", "torch.nn.Module")
        return text and text.replace("~torch.optim.optimizer.Optimizer", "torch.optim.Optimizer")

    return named(signature), named(returned)


def quote_as_written(app, doctree) -> None:
    """Shapes and literals in signatures as in the source: ``Float[Tensor, "n d"]``, without the space of `` n``."""
    for string in doctree.findall(desc_sig_literal_string):
        string.children = [nodes.Text('"' + string.astext()[1:-1].strip() + '"')]


def find_public(app, env, node, shown) -> nodes.Node | None:
    """A docstring names what the reference describes without its module, wherever the docstring stands."""
    domain = env.get_domain("py")
    found = [name for name in domain.objects if name.endswith(f".{node['reftarget']}")]
    if node.get("refdomain") != "py" or not found:
        return None
    shortest = min(found, key=lambda name: name.count("."))  # what gpvi_lib exports comes first
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", shortest, node, shown)


def setup(app) -> None:
    """Sphinx calls this."""
    app.add_directive("public", Public)
    app.add_directive("gallery", Gallery)
    app.connect("source-read", make_cover)
    app.connect("doctree-read", name_cells)
    app.connect("autodoc-process-signature", name_torch)
    app.connect("doctree-read", describe_figures)
    app.connect("doctree-read", link_figures)
    app.connect("doctree-read", quote_as_written)
    app.connect("doctree-read", name_folded_cells)
    app.connect("doctree-read", size_tables)
    app.connect("doctree-read", keep_punctuation)
    app.connect("missing-reference", find_public)
