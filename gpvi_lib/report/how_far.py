"""`docs/how-far.md`: for every figure and table of the four papers, how far our runs went beside what is printed.

Built from the records behind the scoreboard and from configurations, so that nobody writes its numbers by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpvi_lib.errors import GPVIError
from gpvi_lib.experiments import Experiment, fpovi_exact, fpovi_toy, get_experiment, inverse_solvers, livi_entropy
from gpvi_lib.experiments.fpovi_uci import ROWS as UCI_ROWS
from gpvi_lib.experiments.printed import NOISE_SCALE, PRINTED, RUNS, Printed
from gpvi_lib.lab import records
from gpvi_lib.lab.experiment import steps_of
from gpvi_lib.report import scoreboard
from gpvi_lib.report.plotting import METHOD_LABELS
from gpvi_lib.report.tables import markdown

if TYPE_CHECKING:
    import pandas

    from gpvi_lib.report.scoreboard import Filler, Ours, RowKey

PROFILE = "paper"


@dataclass(frozen=True)
class Section:
    """One figure or table of the paper, or several with the same settings.

    Attributes:
        title, notebook: of the section, and where it is treated.
        parts: scoreboard item, one metric that all its methods have, and what is said of the part, "" for nothing.
        data: whether there are data, of which a step takes a batch.
    """

    title: str
    notebook: str
    parts: tuple[tuple[str, str, str], ...]
    data: bool = True


SMALL_SHAPES = {"table7": ", 10–10", "table8": ", 10–10"}
ENERGY, GAMES = "12-energy-potentials", "22-function-space-bandits"


def _functions(title: str, names: Sequence[str]) -> Section:
    """The tables of f-POVI on UCI sets: one layer of 50 units (protein: 100), two of as many, two of 10."""
    two = {name: "100–100" if name == "protein" else "50–50" for name in names}
    shapes = {name: {"table4": "", "table6": f", {two[name]}"} | SMALL_SHAPES for name in names}
    items = ((f"fpovi/{table}/{name}", f"{name}{shape}") for name in names for table, shape in shapes[name].items())
    return Section(title, "21-function-space-uci", tuple((item, "test_rmse", part) for item, part in items))


SECTIONS = (
    Section("Figure 1: regression on the line", "10-one-dimensional-regression", (("gpvi/figure1", "w1", ""),)),
    Section(
        "Tables 1 and 5: Gaussian density estimation",
        "11-gaussian-density",
        tuple((f"gpvi/{table}/{d}d", "sigma_error", f"d = {d}") for d in (2, 5) for table in ("table1", "table5")),
        data=False,
    ),
    Section("Table 2: Bayesian linear regression", "13-bayesian-linear-regression", (("gpvi/table2", "mu_error", ""),)),
    Section(
        "Figures 2 and 8: classification in the plane, four classes",
        "14-classification",
        (("gpvi/figure8", "total_variation", ""), ("gpvi/figure2", "rmse_sd", "")),
    ),
    Section(
        "Figure 9: classification in the plane, two classes",
        "14-classification",
        (("gpvi/figure9", "total_variation", ""),),
    ),
    Section(
        "Table 3: open category on MNIST",
        "15-open-category-mnist",
        (("gpvi/table3/mnist", "auroc", ""), ("gpvi/table3/mnist", "clean_accuracy_percent", "Clean")),
    ),
    Section(
        "Table 4: open category on CIFAR-10",
        "16-open-category-cifar10",
        (("gpvi/table4/cifar10", "auroc", ""), ("gpvi/table4/cifar10", "clean_accuracy_percent", "Clean")),
    ),
    Section(
        "Figure 3: solvers of the inverse Jacobian",
        "04-helper-against-bicgstab",
        (("gpvi/figure3", "", ""),),
    ),
    Section("Figure 4: twin moons", ENERGY, (("gpvi/figure4", "kl", ""),), data=False),
    Section("Figure 5: sinusoid", ENERGY, (("gpvi/figure5", "kl", ""),), data=False),
    Section("Figure 6: sin bisect", ENERGY, (("gpvi/figure6", "kl", ""),), data=False),
    Section("Figure 7: sin split", ENERGY, (("gpvi/figure7", "kl", ""),), data=False),
    Section(
        "Wild VI, Figure 2: a mixture on the line",
        "18-wild-variational-inference",
        (("wild-vi/figure2", "kl", ""),),
        data=False,
    ),
    Section(
        "Wild VI, Figures 3 and 4: Covertype", "19-learned-step-sizes", (("wild-vi/figure3", "log_likelihood", ""),)
    ),
    Section("f-POVI, Figure 1: the toy", "20-function-space", (("fpovi/figure1/data", "w1", ""),)),
    Section(
        "f-POVI, Figure 5: the toy by width, and its method taken apart",
        "20-function-space",
        (("fpovi/figure5", "", ""),),
    ),
    Section(
        "f-POVI, Figure 9: networks and minibatches against the exact posterior",
        "20-function-space",
        (("fpovi/figure9", "", ""),),
    ),
    _functions(
        "f-POVI, Tables 4 to 8: UCI sets of fewer than 1,000 rows", [n for n in UCI_ROWS if UCI_ROWS[n] < 1_000]
    ),
    _functions("f-POVI, Tables 4 to 8: larger UCI sets", [n for n in UCI_ROWS if UCI_ROWS[n] >= 1_000]),
    Section("f-POVI, Table 2: MNIST", GAMES, (("fpovi/table2/mnist", "test_error_percent", ""),)),
    Section(
        "f-POVI, Table 3: bandits",
        GAMES,
        tuple((f"fpovi/table3/{name}", "relative_cumulative_regret_percent", name) for name in ("mushroom", "wheel")),
    ),
    Section("f-POVI, Figure 3 and Table 9: adversarial images", GAMES, (("fpovi/table9/mnist", "clean_accuracy", ""),)),
    Section("LIVI, F.5: its entropies", "23-livi-bounds", (("livi/figureF.4", "", ""),)),
    Section("LIVI, Figure 1: the toy", "24-livi-regression", (("livi/figure1", "w1", ""),)),
    Section(
        "LIVI, Tables 1, F.1 and F.2: UCI sets",
        "24-livi-regression",
        tuple(
            (f"livi/table1/{name}", "test_rmse", name) for name in ("boston", "concrete", "energy", "kin8nm", "naval")
        ),
    ),
    Section(
        "LIVI, Tables 2 and F.3: out of distribution",
        "25-livi-out-of-distribution",
        (("livi/table2/mnist_ood", "auroc_percent", ""),),
    ),
    Section(
        "LIVI, Table 2: CIFAR-10", "25-livi-out-of-distribution", (("livi/table2/cifar10_ood", "auroc_percent", ""),)
    ),
)
UNSCORED = {
    "gpvi/figure3": ("inverse-solvers-long", inverse_solvers.LABELS),
    "fpovi/figure5": ("fpovi-toy-controls", fpovi_toy.LABELS),
    "fpovi/figure9": ("fpovi-exact", fpovi_exact.LABELS),
    "livi/figureF.4": ("livi-entropy", livi_entropy.LABELS),
}
"""Figures without a number in the scoreboard: their experiment, and the names of its methods."""


@dataclass(frozen=True)
class Row:
    """How one method of a figure or table was run.

    Attributes:
        label: the method for a reader.
        experiment, method: the runs, the longest that there are; without any, the first that would be.
        seeds: how many have a record.
        printed: the printed length, in ``unit``s.
        unit: steps in it: 1, or those of an epoch.
        part: as in :class:`Section`.
        ended: "" or when its runs met NaN, which is before their length.
        last_step: of the run that came farthest, where all of them did.
    """

    label: str
    experiment: Experiment
    method: str
    seeds: int
    printed: int | None
    unit: int
    part: str
    ended: str = ""
    last_step: int | None = None

    @property
    def config(self) -> dict:
        """Of its runs."""
        return self.experiment.config(self.method, PROFILE)


def rows(section: Section, ours: dict[RowKey, Ours]) -> list[Row]:
    """All rows of a section, runs that stand in two of its tables once; ``ours`` is what the records fill."""
    found: dict[tuple[str, str, str], Row] = {}
    for item, metric, part in section.parts:
        for row in _unscored(item) if item in UNSCORED else _scored(item, metric, part, ours):
            found.setdefault((row.experiment.name, row.method, row.part), row)
    return list(found.values())


def _scored(item: str, metric: str, part: str, ours: dict[RowKey, Ours]) -> Iterator[Row]:
    """The scoreboard's rows of an item, with and without records."""
    for key, fillers in scoreboard.planned().items():
        if (key[0], key[2]) != (item, metric) or not _trains(fillers):
            continue
        if item.startswith("fpovi/") and fillers[0].experiment.name == "uci-regression":
            continue  # of another model and not after this paper; it has its lines under LIVI's table
        if key in ours:
            (name, method), seeds = ours[key].run, len(ours[key].values)
            filler = next(one for one in fillers if (one.experiment.name, one.method) == (name, method))
        else:
            filler, seeds = fillers[0], 0
        printed = _printed_of(item).length_of(key[1])
        yield Row(_label(filler), filler.experiment, filler.method, seeds, printed, filler.score.epoch, part)


def _printed_of(item: str) -> Printed:
    """What the paper prints of the runs behind an item.

    Raises:
        GPVIError: if nobody entered it.
    """
    if item not in PRINTED:
        raise GPVIError(f"{item} has a section here and no length: enter it in PRINTED of experiments/printed.py")
    return PRINTED[item]


def _trains(fillers: Iterable[Filler]) -> bool:
    """Whether there is anything to run: draws of a reference are compared, too."""
    return any(filler.steps(PROFILE) for filler in fillers)


def _unscored(item: str) -> Iterator[Row]:
    """Every method of a figure's experiment that trains."""
    name, labels = UNSCORED[item]
    experiment = get_experiment(name)
    found = records.frame(experiment, PROFILE, missing="skip")
    for method in experiment.methods:
        if steps_of(experiment.config(method, PROFILE)) is None:
            continue
        runs = found[found["method"] == method]
        printed = _printed_of(item).length
        yield Row(labels[method], experiment, method, len(runs), printed, 1, "", *_ended(runs))


def _ended(runs: pandas.DataFrame) -> tuple[str, int | None]:
    """When runs met NaN, of an experiment that calls this a result; and the last step of all, if none went on."""
    if "diverged" not in runs or not runs["diverged"].any():
        return "", None
    steps = runs.loc[runs["diverged"] == 1, "last_step"]
    said = f"NaN on {len(steps)} of {len(runs)} seeds, after {steps.min():.0f} to {steps.max():.0f} steps"
    return said, int(steps.max()) if len(steps) == len(runs) else None


LANGEVIN = {
    "svgd": "SVGD (15)",
    "svgd_full": "SVGD (15)",
    "svgd_truncated": "SVGD (15), scores held fixed",
    "svgd_scalar": "SVGD (15), one step size a layer",
    "svgd_without_noise": "SVGD (15), without noise",
    "regression": "Regression (14)",
    "gauss_newton": "Regression (14), Gauss–Newton",
    "ksd_u": "KSD (16), U-statistic",
    "ksd_u_h1": "KSD (16), U-statistic, h = 1",
    "ksd_u_h10": "KSD (16), U-statistic, h = 10",
    "ksd_u_truncated": "KSD (16), U-statistic, scores held fixed",
    "ksd_u_two_batches": "KSD (16), U-statistic, two batches",
    "ksd_v": "KSD, V-statistic",
    "path": "Path bound",
    "semi_implicit": "Semi-implicit bound",
}
"""Ways to train a Langevin network -> names; the equations are Wild VI's."""


def _label(filler: Filler) -> str:
    """The method's name; ``<method>_best`` where only the setting says that it is one."""
    if filler.experiment.name.startswith("wild-"):
        row, *depth = re.split(r"_t(?=\d+$)", filler.method)
        return ", T = ".join([LANGEVIN[row], *depth])
    if filler.method in METHOD_LABELS:
        return METHOD_LABELS[filler.method]
    _, published, _, setting = filler.key
    return METHOD_LABELS[published if setting == "printed" else f"{published}_{setting}"]


# ---------------------------------------------------------------- cells


def length(row: Row, unit: str) -> str:
    """ "3 / 100 epochs"; of a chain in proposals, without runs "not run"."""
    config, steps = row.config, steps_of(row.config)
    chain = "num_steps" in config  # whose proposals are no epochs
    unit = "proposals" if chain else unit
    steps = row.last_step or steps
    ours = f"{steps / (1 if chain else row.unit):,.0f}" if steps and row.seeds else "not run"
    return f"{ours} / {'–' if row.printed is None else f'{row.printed:,}'} {unit}"


def share(row: Row) -> str:
    """Of the printed length, in percent."""
    steps = row.last_step or steps_of(row.config)
    if not (steps and row.seeds and row.printed):
        return "–"
    percent = 100 * steps / (row.unit * row.printed)
    return f"{percent:.2g} %" if percent < 10 else f"{percent:.0f} %"


def samples(config: dict) -> str:
    """Samples a step, or particles; a chain has neither, nor has what trains nothing."""
    sampler = config.get("sampler")
    held = sampler.get("num") if isinstance(sampler, dict) else None
    number = config.get("objective", {}).get("num_samples") or held or config.get("particles")
    return f"{number:,}" if number else "–"


def batch(config: dict, data: bool) -> str:
    """Data a step."""
    return str(config.get("batch_size") or "all") if data else "–"


def noise_scale(config: dict) -> str:
    """λ of a generator; a dash for what has none to choose."""
    sampler = config.get("sampler")
    if not isinstance(sampler, dict) or sampler["kind"] != "generator":
        return "–"
    if sampler["noise_scale"] is None:
        return "none"
    value = f"{sampler['noise_scale']:g}"
    if sampler.get("noise_scale_unit") == "prior":
        value += " of the prior's scale, one per weight"
    return f"trained from {value}" if sampler.get("train_noise_scale") else value


SAID = re.compile(
    r"[\d,]+ (of [\d,]+ )?(steps|epochs|rounds)( instead of [\d,]+)?|\d+ samples a step( instead of \d+)?"
    r"|no λ|λ = [\d.]+|one trained λ (per weight|from [\d.]+)"
)
"""Parts of what differs that have a column of their own."""


def differs(row: Row) -> list[str]:
    """The parts of what differs besides; commas inside parentheses separate none."""
    parts = re.split(r"[;,] (?![^(]*\))", row.experiment.deviations(row.method, PROFILE))
    return [part for part in (*parts, row.ended) if part and not SAID.fullmatch(part)]


# ---------------------------------------------------------------- the page

HEADS = ("Method", "Length, ours / printed", "Share", "Seeds", "Samples a step", "Batch", "λ", "What else differs")
TOP = f"""# How far our runs go

Each table below stands for a figure or table of a paper, GPVI's first, each row for a method. A row shows the longest
runs that we have: their length beside the printed one, the number of seeds with a record, the samples and the data that
a step takes, λ, and what else is not as printed. The line above a table says what the paper prints there; for all of
its own the paper of GPVI prints λ = {NOISE_SCALE:g} (section 3.2) and means of {RUNS} runs (appendix E). What trains
nothing, such as a schedule made by hand, has no row. A dash stands for what is not printed or does not apply, "none"
for a generator without λ. A row of less than half the printed length gets no verdict on the
[scoreboard](scoreboard.md); our best settings have lengths of their own. `python -m gpvi_lib scoreboard` writes this
page from the records."""


def page() -> str:
    """The page as Markdown."""
    ours = scoreboard.collect(PROFILE)
    return "\n\n".join([TOP, *(_of_section(section, ours) for section in SECTIONS)]) + "\n"


def _of_section(section: Section, ours: dict[RowKey, Ours]) -> str:
    found = rows(section, ours)
    parts = [differs(row) for row in found if row.seeds]
    common = [part for part in parts[0] if all(part in other for other in parts)] if parts else []
    link = f"[{section.notebook[:2]}](../notebooks/{section.notebook}.ipynb)"
    said = [_printed(PRINTED[section.parts[0][0]]), f"Different in all rows: {', '.join(common)}." if common else ""]
    text = " ".join([*filter(None, said), f"Notebook {link}."])
    return f"## {section.title}\n\n{text}\n\n{table(section, found, common)}"


def _printed(printed: Printed) -> str:
    """What the paper prints, as a sentence."""
    known = [
        f"{printed.length:,} {printed.unit}" if printed.length else "",
        f"batches of {printed.batch}" if printed.batch else "",
        f"{printed.samples:,} samples" if printed.samples else "",
    ]
    said = ", ".join(filter(None, known)) or "no length, no number of samples"
    return f"Printed: {said} ({printed.source})."


def table(section: Section, found: Sequence[Row], common: Sequence[str]) -> str:
    """The rows of a section as Markdown, aligned; what differs in common is left out."""
    unit, lines = PRINTED[section.parts[0][0]].unit, []
    for row in found:
        label = f"{row.label}, {row.part}" if row.part else row.label
        cells = ["–"] * 4
        if row.seeds:
            besides = ", ".join(part for part in differs(row) if part not in common) or "–"
            cells = [samples(row.config), batch(row.config, section.data), noise_scale(row.config), besides]
        lines.append([label, length(row, unit), share(row), str(row.seeds), *cells])
    return markdown(lines, HEADS)
