"""The parts of README.md that are built from records: where everything is, and how our numbers compare."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpvi_lib import paths
from gpvi_lib.errors import GPVIError
from gpvi_lib.experiments import get_experiment
from gpvi_lib.lab import records
from gpvi_lib.paths import write_atomically
from gpvi_lib.report import scoreboard
from gpvi_lib.report.tables import plus_minus

if TYPE_CHECKING:
    import pandas

MAP: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Algorithm 1", "notebooks/00a-gpvi-in-sixty-lines", ()),
    ("Theorem 3.1, equation 4; A.1, A.3", "notebooks/01-functional-gradient", ()),
    ("section 3.2, A.4", "notebooks/02-injectivity", ("injectivity", "injectivity-plane", "activations")),
    ("section 3.3, B.1", "notebooks/03-jacobian-inverse", ("inverse-cost",)),
    ("Figure 3, appendix C", "notebooks/04-helper-against-bicgstab", ("inverse-solvers",)),
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
            "open-category-mnist-published",
            "open-category-mnist-clean-published",
            "open-category-settings",
            "open-category-digits",
            "open-category-prior",
            "smooth-mnist",
        ),
    ),
    (
        "Table 4, section 4.4",
        "notebooks/16-open-category-cifar10",
        (
            "open-category-cifar10",
            "open-category-cifar10-clean",
            "open-category-cifar10-published",
            "open-category-cifar10-clean-published",
        ),
    ),
    ("beyond the paper: regression on UCI sets", "notebooks/17-your-own-model", ("uci-regression", "smooth-uci")),
    (
        "Wild VI (Liu and Feng 2016): equations 14 to 18, Figure 2",
        "notebooks/18-wild-variational-inference",
        ("wild-mixture", "wild-mixture-controls"),
    ),
    ("Wild VI: Figures 3 and 4", "notebooks/19-learned-step-sizes", ("wild-logistic",)),
    (
        "function-space POVI: Figures 1, 4, 5 and 9, Tables 2 to 9",
        "notebooks/20-function-space",
        (
            "fpovi-toy",
            "fpovi-toy-reference",
            "fpovi-toy-controls",
            "fpovi-exact",
            *(f"fpovi-uci-{name}" for name in ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein")),
            "fpovi-uci-winered",
            "fpovi-uci-yacht",
            "fpovi-mnist",
            "fpovi-bandits-mushroom",
            "fpovi-bandits-wheel",
            "fpovi-adversarial",
        ),
    ),
    (
        "LIVI: Figure 1, F.5, Tables 1 and 2; no notebook yet",
        "docs/how-far",
        (
            *("livi-toy", "livi-toy-reference", "livi-entropy", "livi-uci", "livi-uci-settings"),
            *("livi-mnist", "livi-mnist-published", "livi-cifar10"),
        ),
    ),
    ("section 4.5", "docs/performance", ("overhead",)),
)
"""Part of the paper, where it is treated, and the experiments behind it; each experiment is named once.

An experiment without records takes no part."""


def where() -> str:
    """The map as Markdown: part of the paper, notebook, figures, and the records with the time they took."""
    lines = ["| In the paper | Here | Figures | Records (runs, time) |", "|---|---|---|---|"]
    for part, page, names in MAP:
        path = f"{page}.ipynb" if page.startswith("notebooks/") else f"{page}.md"
        found = ", ".join(_took(name, records.frame(get_experiment(name), "paper", missing="skip")) for name in names)
        lines.append(f"| {part} | [{Path(page).stem}]({path}) | {_figures(Path(page).stem)} | {found} |")
    return "\n".join(lines)


def _figures(page: str) -> str:
    """Links to the figures of a notebook, in the order of their names; a page that is no notebook has none."""
    number = page.split("-")[0]
    found = sorted((paths.repository() / "figures" / "paper").glob(f"{number}-*.png")) if number[:2].isdigit() else []
    return " ".join(f"[{i}](figures/paper/{path.name})" for i, path in enumerate(found, 1))


def _took(name: str, frame: pandas.DataFrame) -> str:
    if frame.empty:
        return f"`{name}` (none yet)"
    hours = float(frame["seconds"].sum()) / 3600
    return f"`{name}` ({len(frame)}, " + (f"{hours:.1f} h)" if hours >= 0.1 else f"{60 * hours:.0f} min)")


def scores() -> str:
    """All published numbers that we have one for, as Markdown, after lines that count the verdicts."""
    board = scoreboard.build("paper")
    ran = board[board["paper_mean"].notna() & (board["n_seeds"] > 0)]
    two_words = (ran["verdict"] != ran["verdict_median"]).sum()
    lines = [
        f"The GPVI paper's numbers at its printed settings, each once: {_counted(scoreboard.headline(board))}.",
        f"All comparisons with the four papers, our best settings too: {_counted(Counter(ran['verdict']))}.",
        f"These words are about our mean over seeds. In {two_words} rows our median has another: the table gives both.",
        "",
        "<details><summary>All of them</summary>",
        "",
        "| Item | Metric | Method | Setting | Paper | Ours | Seeds | Steps, ours / printed | Median [range] "
        "| Error, ours / paper | Verdict |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [_line(row) for row in ran.itertuples()]
    return "\n".join([*lines, "", "</details>"])


def _line(row: Any) -> str:
    """One row of the scoreboard as Markdown; the means as mean ± sd."""
    spread = f"{row.ours_median:.3g} [{row.ours_min:.3g}, {row.ours_max:.3g}]" if row.n_seeds > 1 else ""
    ratio = f"{row.ratio:.2g} [{row.ratio_low:.2g}, {row.ratio_high:.2g}]"
    paper = plus_minus(row.paper_mean, row.paper_sd, sd_form=".2g")
    ours = plus_minus(row.ours_mean, row.ours_sd, sd_form=".2g")
    numbers = (paper, ours, str(row.n_seeds), scoreboard.length(row.steps, row.printed_steps), spread, ratio)
    judged = scoreboard.words(row.verdict, row.verdict_median)
    return "| " + " | ".join((row.item, row.metric, row.method, row.setting, *numbers, judged)) + " |"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {word}" for word, number in counts.items() if number)


PARTS = {"map": where, "scores": scores}


def updated(text: str) -> str:
    """``text`` with what is between ``<!-- NAME -->`` and ``<!-- /NAME -->`` built anew.

    Raises:
        GPVIError: if a part's marks are not there.
    """
    for name, build in PARTS.items():
        between = re.search(rf"(?<=<!-- {name} -->\n).*?(?=\n<!-- /{name} -->)", text, re.DOTALL)
        if between is None:
            raise GPVIError(f"README.md has no <!-- {name} --> ... <!-- /{name} -->")
        text = text[: between.start()] + build() + text[between.end() :]
    return text


def update(path: Path) -> None:
    """Build the generated parts of README.md anew."""
    write_atomically(path, updated(path.read_text()).encode())
