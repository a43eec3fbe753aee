"""Tables of notebooks and reports: Markdown from rows, numbers as mean ± standard deviation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import t as student

if TYPE_CHECKING:
    from IPython.display import Markdown

NOTHING = "–"
"""What a cell shows where there is no number."""


def markdown(rows: Iterable[Any], columns: Sequence[str] | None = None) -> str:
    """Return a Markdown table whose cells are shown as given.

    Args:
        rows: sequences of cells, dictionaries column -> cell, or a data frame.
        columns: the head; of dictionaries and data frames the keys, unless given.
    """
    import pandas

    frame = pandas.DataFrame(rows, columns=None if columns is None else list(columns))
    return frame.to_markdown(index=False, disable_numparse=True)


def table(rows: Iterable[Any], columns: Sequence[str] | None = None) -> Markdown:
    """Return the table of :func:`markdown` as an object that a notebook displays."""
    from IPython.display import Markdown

    return Markdown(markdown(rows, columns))


def half_interval(differences: np.ndarray, overlap: float = 1 / 9) -> float:
    """Return half of the 95 % interval of the mean of ``n`` paired differences over random splits; NaN for one split.

    Splits share training data, for which the variance ``s² (1/n + overlap)`` of Nadeau and Bengio (2003) allows.

    Args:
        overlap: test rows over training rows of a split.
    """
    if len(differences) < 2:
        return math.nan
    scale = differences.std(ddof=1) * math.sqrt(1 / len(differences) + overlap)
    return float(student.ppf(0.975, len(differences) - 1) * scale)


def plus_minus(mean: float, sd: float, form: str = ".3g", sd_form: str | None = None) -> str:
    """Return "mean ± sd" in format ``form``: the mean alone if ``sd`` is NaN, a dash if the mean is.

    Args:
        sd_form: the format of the standard deviation where it differs.
    """
    if math.isnan(mean):
        return NOTHING
    return f"{mean:{form}}" + ("" if math.isnan(sd) else f" ± {sd:{sd_form or form}}")


def pm(values: Iterable[float], digits: int = 2) -> str:
    """Return "mean ± sd" of one value a run, with ``digits`` decimals.

    The standard deviation divides by n - 1. Of one run the mean stands alone; of none, or where a run has NaN,
    a dash.
    """
    import pandas

    runs = pandas.Series(values, dtype=float)
    return plus_minus(runs.mean(skipna=False), runs.std(), f".{digits}f")


def median_range(values: Iterable[float]) -> str:
    """Return "median [smallest, largest]" of one value a run, two significant digits each; nothing of a single run."""
    import pandas

    runs = pandas.Series(values, dtype=float)
    return f"{runs.median():.2g} [{runs.min():.2g}, {runs.max():.2g}]" if len(runs) > 1 else ""
