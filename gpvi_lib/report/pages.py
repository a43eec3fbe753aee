"""The parts of pages in docs/ that are built from records: where everything is, and how our numbers compare."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpvi_lib import paths
from gpvi_lib.errors import GPVIError
from gpvi_lib.experiments import fpovi_bandits, fpovi_uci, get_experiment
from gpvi_lib.lab import records
from gpvi_lib.report import scoreboard
from gpvi_lib.report.plotting import METHOD_LABELS
from gpvi_lib.report.tables import plus_minus

if TYPE_CHECKING:
    import pandas

MAP: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Algorithm 1", "notebooks/00a-gpvi-in-sixty-lines", ()),
    ("Theorem 3.1, equation 4; A.1, A.3", "notebooks/01-functional-gradient", ()),
    ("section 3.2, A.4", "notebooks/02-injectivity", ("injectivity", "injectivity-plane", "activations")),
    ("section 3.3, B.1", "notebooks/03-jacobian-inverse", ("inverse-cost",)),
    ("Figure 3, appendix C", "notebooks/04-helper-against-bicgstab", ("inverse-solvers-long",)),
    (
        "Table 5, D.1",
        "notebooks/05-exact-jacobian",
        ("gaussian-density-2d", "gaussian-density-5d", "gaussian-density-controls"),
    ),
    (
        "section 3.5, Lemma 3.2; A.2",
        "notebooks/06-gpvi-against-amortised-svgd",
        ("descent-banana", "descent-wide", "descent-from-optimum"),
    ),
    ("section 2: ParVI", "notebooks/07-directions", ()),
    ("appendix E: HMC", "notebooks/08-hmc", ("nuts-reference",)),
    (
        "Figure 1",
        "notebooks/10-one-dimensional-regression",
        (
            "one-dimensional-regression",
            "one-dimensional-regression-full-length",
            "one-dimensional-regression-reference",
            "one-dimensional-regression-controls",
            "one-dimensional-regression-functions",
            "one-dimensional-regression-settings",
        ),
    ),
    (
        "Table 1, section 4.1",
        "notebooks/11-gaussian-density",
        ("gaussian-density-variants", "gaussian-density-2d-long", "gaussian-density-5d-long", "smooth-tables"),
    ),
    (
        "Figures 4 to 7, D.1",
        "notebooks/12-energy-potentials",
        (
            "energy-twin-moons",
            "energy-sinusoid",
            "energy-sin-bisect",
            "energy-sin-split",
            "energy-controls",
            "energy-full-length",
            "energy-settings",
        ),
    ),
    (
        "Table 2, section 4.2",
        "notebooks/13-bayesian-linear-regression",
        ("bayesian-linear-regression", "bayesian-linear-regression-settings"),
    ),
    (
        "Figures 2, 8 and 9, section 4.3, D.2",
        "notebooks/14-classification",
        (
            "classification-4",
            "classification-2",
            "classification-reference",
            "classification-controls",
            "classification-functions",
            "classification-full-length",
            "classification-all-steps",
            "classification-settings",
            "smooth-figures",
        ),
    ),
    (
        "Table 3, section 4.4",
        "notebooks/15-open-category-mnist",
        (
            "open-category-mnist",
            "open-category-mnist-clean",
            "open-category-mnist-longer",
            "open-category-mnist-half",
            "open-category-mnist-published",
            "open-category-mnist-clean-published",
            "open-category-settings",
            "open-category-digits",
            "open-category-prior",
            "digits-long",
            "digits-long-mnist",
            "smooth-mnist",
        ),
    ),
    (
        "Table 4, section 4.4",
        "notebooks/16-open-category-cifar10",
        (
            "open-category-cifar10",
            "open-category-cifar10-thirty",
            "open-category-cifar10-clean",
            "open-category-cifar10-published",
            "open-category-cifar10-clean-published",
        ),
    ),
    (
        "beyond the paper: regression on UCI sets, a classifier",
        "notebooks/17-your-own-model",
        ("uci-regression", "smooth-uci", "check-table", "classifier", "classifier-settings"),
    ),
    (
        "Wild VI (Liu and Feng 2016): equations 14 to 18, Figure 2",
        "notebooks/18-wild-variational-inference",
        ("wild-mixture", "wild-mixture-controls"),
    ),
    ("Wild VI: Figures 3 and 4", "notebooks/19-learned-step-sizes", ("wild-logistic", "wild-logistic-sizes")),
    (
        "function-space POVI: Figures 1, 4, 5 and 9",
        "notebooks/20-function-space",
        ("fpovi-toy", "fpovi-toy-reference", "fpovi-toy-controls", "fpovi-exact"),
    ),
    (
        "function-space POVI: Tables 4 to 8",
        "notebooks/21-function-space-uci",
        tuple(experiment.name for experiment in fpovi_uci.EXPERIMENTS),
    ),
    (
        "function-space POVI: Figure 3, Tables 2, 3 and 9",
        "notebooks/22-function-space-bandits",
        (*(experiment.name for experiment in fpovi_bandits.EXPERIMENTS), "fpovi-mnist", "fpovi-adversarial"),
    ),
    (
        "LIVI (Uppal et al. 2023): equations 14 to 18, F.5",
        "notebooks/23-livi-bounds",
        ("livi-entropy",),
    ),
    (
        "LIVI: Figure 1, Table 1",
        "notebooks/24-livi-regression",
        ("livi-toy", "livi-toy-reference", "livi-uci", "livi-uci-chains", "livi-uci-settings"),
    ),
    (
        "LIVI: Table 2, Figures 2 and 3",
        "notebooks/25-livi-out-of-distribution",
        ("livi-mnist", "livi-mnist-published", "livi-cifar10"),
    ),
    (
        "beyond the papers: all methods at one setting",
        "notebooks/26-which-one",
        ("benchmark", "benchmark-older", "benchmark-uci", "benchmark-reference"),
    ),
    ("section 4.5", "docs/performance", ("overhead",)),
)
"""Part of the paper, where it is treated, and the experiments behind it; each experiment is named once.

An experiment without records takes no part."""


def where() -> str:
    """The map as Markdown: part of the paper, notebook, figures, and the records with the time they took."""
    lines = ["| In the paper | Here | Figures | Records (runs, time) |", "|---|---|---|---|"]
    for part, page, names in MAP:
        path = f"../{page}.ipynb" if page.startswith("notebooks/") else f"{Path(page).name}.md"
        found = ", ".join(_took(name, records.frame(get_experiment(name), "paper", missing="skip")) for name in names)
        stem = Path(page).stem
        lines.append(f"| {part} | [{stem.replace('-', ' ')}]({path}) | {_figures(stem)} | {found} |")
    return "\n".join(lines)


def _figures(page: str) -> str:
    """Links to the figures of a notebook by their names, in order; a page that is no notebook has none."""
    number = page.split("-")[0]
    found = sorted((paths.repository() / "figures" / "paper").glob(f"{number}-*.png")) if number[:2].isdigit() else []
    names = [path.stem.removeprefix(f"{number}-").replace("-", " ") for path in found]
    return ", ".join(f"[{name}](../figures/paper/{path.name})" for name, path in zip(names, found, strict=True))


def _took(name: str, frame: pandas.DataFrame) -> str:
    if frame.empty:
        return f"`{name}` (none yet)"
    hours = float(frame["seconds"].sum()) / 3600
    return f"`{name}` ({len(frame)}, " + (f"{hours:.1f} h)" if hours >= 0.1 else f"{60 * hours:.0f} min)")


PAPERS = {"gpvi": "GPVI", "livi": "LIVI", "fpovi": "Function-space POVI", "wild-vi": "Wild VI"}
CONTINUED = {"livi/table1": "Tables 1, F.1 and F.2", "livi/table2": "Tables 2 and F.3"}
"""Tables that an appendix goes on with, under the name that their numbers share in the list of published ones."""
HEADS = ("", "Number", "Method", "Setting", "Published", "Ours", "Seeds", "Steps, ours / printed", "Median [range]")


def scores() -> str:
    """All published numbers that we have one for, as Markdown: how many of each verdict, then a table for each item."""
    board = scoreboard.build("paper")
    ran = board[board["paper_mean"].notna() & (board["n_seeds"] > 0)]
    two_words = (ran["verdict"] != ran["verdict_median"]).sum()
    once = scoreboard.each_once(ran)["verdict"]
    counts = {word: int((once == word).sum()) for word in scoreboard.WORDS}
    lines = [
        "The GPVI paper's numbers at its printed settings, each once, without Table 2's errors of μ: "
        f"{_counted(scoreboard.headline(board))}.",
        "",
        f"* All comparisons with the four papers, each once, without μ, our best settings too: {_counted(counts)}.",
        f"* In {two_words} rows the verdict on our median is another than the one on our mean: the table gives both.",
    ]
    heads = (*HEADS, "Error, ours / published", "Verdict")
    for title, rows in ran.groupby(ran["item"].map(_title), sort=False):
        lines += ["", f"### {title}", "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        lines += [_line(row) for row in rows.itertuples()]
    return "\n".join(lines)


def _title(item: str) -> str:
    """``gpvi/table1/2d`` as "GPVI, Table 1"."""
    paper, part, *_ = item.split("/")
    printed = part.replace("table", "Table ").replace("section", "section ")
    return f"{PAPERS[paper]}, {CONTINUED.get(f'{paper}/{part}', printed)}"


def _line(row: Any) -> str:
    """One row of the scoreboard as Markdown; the means as mean ± sd."""
    spread = f"{row.ours_median:.3g} [{row.ours_min:.3g}, {row.ours_max:.3g}]" if row.n_seeds > 1 else ""
    ratio = f"{row.ratio:.2g} [{row.ratio_low:.2g}, {row.ratio_high:.2g}]"
    paper = plus_minus(row.paper_mean, row.paper_sd, sd_form=".2g")
    ours = plus_minus(row.ours_mean, row.ours_sd, sd_form=".2g")
    method = METHOD_LABELS.get(row.method, row.method.replace("_", " "))
    what = (_part(row.item), row.metric.replace("_", " "), method, row.setting)
    numbers = (paper, ours, str(row.n_seeds), scoreboard.length(row.steps, row.printed_steps), spread, ratio)
    judged = scoreboard.words(row.verdict, row.verdict_median)
    return "| " + " | ".join((*what, *numbers, judged)) + " |"


def _part(item: str) -> str:
    """What of a table an item is, such as "2d" or "boston"; "" for a whole one."""
    return " ".join(item.split("/")[2:]).replace("_", " ")


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {word}" for word, number in counts.items() if number)


PAGES = {"map": where, "scoreboard": scores}
"""Pages of docs/ and what builds the part of each."""


def updated(name: str, text: str) -> str:
    """``text`` with what is between ``<!-- generated -->`` and ``<!-- /generated -->`` built anew.

    Args:
        name: a page of ``PAGES``.

    Raises:
        GPVIError: if the marks are not there.
    """
    between = re.search(r"(?<=<!-- generated -->\n).*?(?=\n<!-- /generated -->)", text, re.DOTALL)
    if between is None:
        raise GPVIError(f"docs/{name}.md has no <!-- generated --> ... <!-- /generated -->")
    return text[: between.start()] + PAGES[name]() + text[between.end() :]
