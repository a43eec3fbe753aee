"""What :func:`gpvi_lib.check` returns: findings with a verdict each, as text, as HTML and as a picture."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gpvi_lib.errors import UnknownName
from gpvi_lib.extras import optional

VERDICTS = ("trust", "look", "don't")
"""From the best to the worst."""
MARKS = {"trust": "✓", "look": "?", "don't": "✗"}
COLOURS = {"trust": "#0072B2", "look": "#B87A00", "don't": "#A03000"}
WIDTH = 110
"""Of the printed text, in characters."""


@dataclass(frozen=True, eq=False)
class Finding:
    """One check.

    Attributes:
        key: what :class:`CheckReport` finds it by, such as ``"k_hat"``.
        title: its name for a reader.
        value: the number that it found.
        shown: the same as it is printed, with an error or a band where there is one.
        verdict: ``"trust"``, ``"look"`` or ``"don't"``.
        meaning: one sentence: what this value says of the samples.
        rule: from where to where the verdicts go, and who says so.
        arrays: what :meth:`CheckReport.plot` draws.

    Example:
        >>> x = torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
        >>> found = check(x, Gaussian(torch.zeros(2), torch.eye(2)), torch.Generator().manual_seed(1))["spread"]
        >>> found.verdict, 0.8 < found.value < 1.2
        ('trust', True)
    """

    key: str
    title: str
    value: float
    shown: str
    verdict: str
    meaning: str
    rule: str
    arrays: Mapping[str, Tensor] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, eq=False)
class CheckReport:
    """Findings about samples, and one verdict: the worst of theirs.

    Print it, or let a notebook show it; :meth:`plot` draws it. ``report["k_hat"]`` is a single :class:`Finding`.

    Attributes:
        subject: what was checked.
        findings: in the order in which they are shown.
        missing: checks that could not be made, and why.
        blind: what none of the findings can see.

    Example:
        >>> target = Gaussian(torch.zeros(2), torch.eye(2))
        >>> x = torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
        >>> report = check(3 + x, target, torch.Generator().manual_seed(1))  # three standard deviations off
        >>> report.verdict, [finding.key for finding in report.findings]
        ("don't", ['ksd', 'spread'])
    """

    subject: str
    findings: tuple[Finding, ...]
    missing: Mapping[str, str]
    blind: str

    @property
    def verdict(self) -> str:
        """The worst verdict of all findings."""
        return max((finding.verdict for finding in self.findings), key=VERDICTS.index)

    def __getitem__(self, key: str) -> Finding:
        """The finding of this key.

        Raises:
            UnknownName: if there is none; the message says why where it could not be made.
        """
        for finding in self.findings:
            if finding.key == key:
                return finding
        if key in self.missing:
            raise UnknownName(f"there is no {key} in this report: {self.missing[key]}")
        raise UnknownName.among("finding", key, (finding.key for finding in self.findings))

    def __contains__(self, key: str) -> bool:
        """Whether there is a finding of this key."""
        return any(finding.key == key for finding in self.findings)

    def __str__(self) -> str:
        """The report as text, at most ``WIDTH`` characters wide."""
        lines = [f"{MARKS[self.verdict]} {self.verdict.upper()}: {self.subject}", ""]
        names = max(len(finding.title) for finding in self.findings)
        for finding in self.findings:
            lines.append(f"{MARKS[finding.verdict]} {finding.verdict:5s}  {finding.title:{names}s}  {finding.shown}")
            lines += _wrapped(finding.meaning, 9)
        if self.missing:
            lines += ["", "Not checked:"]
            lines += [line for told in self._not_checked() for line in _wrapped(told, 2)]
        return "\n".join([*lines, "", *_wrapped(f"Overall: the worst of these. {self.blind}", 0)])

    def _repr_html_(self) -> str:
        """The report as a table; the rule of each verdict shows under the pointer."""
        rows = "".join(
            f'<tr title="{html.escape(finding.rule)}"><td>{_mark(finding.verdict)}</td>'
            f"<td><b>{html.escape(finding.title)}</b></td><td>{html.escape(finding.shown)}</td>"
            f'<td style="text-align:left">{html.escape(finding.meaning)}</td></tr>'
            for finding in self.findings
        )
        missing = "".join(f"<li>{html.escape(told)}</li>" for told in self._not_checked())
        missing = f"<p>Not checked:</p><ul>{missing}</ul>" if missing else ""
        head = "<tr><th>verdict</th><th>check</th><th>value</th><th>what it means</th></tr>"
        return (
            f"<p>{_mark(self.verdict)}: {html.escape(self.subject)}</p><table>{head}{rows}</table>{missing}"
            f"<p>Overall: the worst of these. {html.escape(self.blind)}</p>"
        )

    def _not_checked(self) -> list[str]:
        """What is missing, those with the same reason together."""
        reasons = dict.fromkeys(self.missing.values())
        return [f"{', '.join(key for key in self.missing if self.missing[key] == why)}: {why}" for why in reasons]

    def rules(self) -> str:
        """From where to where the verdicts go, one line a finding, with the source."""
        return "\n".join(f"{finding.title}: {finding.rule}" for finding in self.findings)

    def plot(self) -> Any:
        """Draw what can be drawn, one panel a finding: a matplotlib ``Figure``.

        Raises:
            GPVIError: if matplotlib is not installed.
        """
        plt = optional("matplotlib.pyplot")
        shown = [finding for finding in self.findings if finding.key in PANELS]
        figure, axes = plt.subplots(1, len(shown), figsize=(3.9 * len(shown), 3.4), squeeze=False, layout="constrained")
        for finding, ax in zip(shown, axes[0], strict=True):
            PANELS[finding.key](ax, finding, COLOURS[finding.verdict])
            ax.set_title(f"{MARKS[finding.verdict]} {finding.verdict}: {finding.title}", color=COLOURS[finding.verdict])
        plt.close(figure)  # whoever shows what is returned shows it once
        return figure


def _wrapped(text: str, indent: int) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * indent)


def _mark(verdict: str) -> str:
    return f'<b style="color:{COLOURS[verdict]}">{MARKS[verdict]}&nbsp;{html.escape(verdict)}</b>'


def _plot_weights(ax: Any, finding: Finding, colour: str) -> None:
    """How much of the total weight the largest weights carry."""
    shares = finding.arrays["weights"].sort(descending=True).values.cumsum(0)
    draws = torch.arange(1, len(shares) + 1)
    ax.plot(draws, shares, color=colour, marker="o", markevery=[0])
    ax.plot(draws, draws / len(shares), color="0.5", linestyle=":", linewidth=1)
    ax.text(0.05, 0.05, "dotted: all draws alike", transform=ax.transAxes, fontsize="small")
    ax.set(xlabel="draws, the most important first", ylabel="their share of p/q", xscale="log", ylim=(0, 1.08))


def _plot_ksd(ax: Any, finding: Finding, colour: str) -> None:
    null = finding.arrays["null"]
    positive = null[null > 0]  # of draws that are all alike some are exactly 0
    bins: Any = 40
    if len(positive) and finding.value > 10 * positive.max():  # on one axis only if it is logarithmic
        bins = torch.logspace(float(positive.min().log10()), float(positive.max().log10()), 40).numpy()
        ax.set_xscale("log")
    ax.hist(null.numpy(), bins=bins, color="0.75")
    ax.axvline(finding.value, color=colour, linewidth=2)
    ax.set(xlabel="squared KSD; grey: exact draws, by bootstrap", ylabel="bootstrap repeats")


def _plot_spread(ax: Any, finding: Finding, colour: str) -> None:
    values, order = finding.arrays["values"].sort()
    errors = finding.arrays["errors"][order]
    ax.errorbar(range(1, len(values) + 1), values, errors, fmt="o", markersize=3, color=colour, linewidth=0.8)
    ax.axhline(1, color="0.4", linestyle="--", linewidth=1)
    ax.set(xlabel="coordinates, from narrow to wide", ylabel="spread; dashed: exact")
    if "directions" in finding.arrays:
        ends, its = finding.arrays["directions"], finding.arrays["direction_errors"]
        ax.errorbar((0, len(values) + 1), ends, its, fmt="D", markersize=5, color=colour, mfc="none", linewidth=0.8)
        ax.set(xlabel="coordinates, sorted; ◇: directions")
    ax.xaxis.get_major_locator().set_params(integer=True)


def _plot_r_hat(ax: Any, finding: Finding, colour: str) -> None:
    values = finding.arrays["r_hat"].sort().values
    ax.plot(range(1, len(values) + 1), values, "o", markersize=3, color=colour)
    ax.axhline(float(finding.arrays["limit"]), color="0.4", linestyle="--", linewidth=1)
    ax.set(xlabel="quantities, sorted", ylabel="R-hat; dashed: the limit")


PANELS: dict[str, Callable[[Any, Finding, str], None]] = {
    "weights": _plot_weights,
    "ksd": _plot_ksd,
    "spread": _plot_spread,
    "r_hat": _plot_r_hat,
}
