"""Tables and numbers of the notebooks: what is shown, and what stands where there is nothing."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from gpvi_lib.report.tables import half_interval, markdown, median_range, plus_minus, pm, table

NAN = float("nan")


def cells(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]


def test_cells_stay_as_given_in_every_form_of_rows():
    head, _, *body = cells(markdown([["a", "1.10"], ["b", "2e3"]], ("name", "number")))
    assert (head, body) == (["name", "number"], [["a", "1.10"], ["b", "2e3"]])
    rows = [{"name": "a", "number": "1.10"}]
    assert markdown(rows) == markdown(pd.DataFrame(rows)) == markdown([["a", "1.10"]], ["name", "number"])


def test_a_table_is_displayed_as_markdown():
    assert table([["a"]], ["name"])._repr_markdown_() == markdown([["a"]], ["name"])


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ((1.2345, 0.0678), "1.23 ± 0.0678"),
        ((1.2345, 0.0678, ".3g", ".1g"), "1.23 ± 0.07"),
        ((1.2345, 0.0678, ".2f"), "1.23 ± 0.07"),
        ((1.2345, NAN, ".1f"), "1.2"),
        ((NAN, 0.1), "–"),
    ],
)
def test_plus_minus(given, text):
    assert plus_minus(*given) == text


def test_pm_is_over_runs_with_n_minus_one():
    values = np.array([1.0, 2.0, 4.0])
    assert pm(values, 3) == f"{values.mean():.3f} ± {values.std(ddof=1):.3f}" == "2.333 ± 1.528"
    assert pm([0.5]) == "0.50"
    assert pm([]) == pm([1.0, NAN]) == "–"


def test_median_range():
    assert median_range([3.0, 1.0, 250.0]) == "3 [1, 2.5e+02]"
    assert median_range([3.0]) == ""


def test_the_interval_over_overlapping_splits_is_wider_than_students():
    found = np.array([1.0, 2.0, 4.0, 5.0])
    students = stats.ttest_1samp(found, 0).confidence_interval(0.95)
    assert half_interval(found, overlap=0.0) == pytest.approx((students.high - students.low) / 2)
    assert half_interval(found) == pytest.approx((1 + 4 / 9) ** 0.5 * half_interval(found, overlap=0.0))
    assert math.isnan(half_interval(found[:1]))  # it decides nothing
