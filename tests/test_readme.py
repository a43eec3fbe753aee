"""What README.md says of records is what they say, and its code runs."""

import math
import re
from types import SimpleNamespace

import pandas
import pytest
import torch

from gpvi_lib import load_sampler
from gpvi_lib.errors import GPVIError
from gpvi_lib.experiments import EXPERIMENTS
from gpvi_lib.paths import repository
from gpvi_lib.report import readme

TEXT = (repository() / "README.md").read_text()


def test_the_generated_parts_are_fresh():
    assert readme.updated(TEXT) == TEXT, "run: python -m gpvi_lib scoreboard"


def test_the_map_leads_to_every_notebook_and_names_every_record_once():
    add = "add it to MAP in gpvi_lib/report/readme.py, then run: python -m gpvi_lib scoreboard"
    pages = {path.stem for path in repository().glob("notebooks/*.ipynb")} - {"00-overview"}
    mapped = {page.removeprefix("notebooks/") for _, page, _ in readme.MAP if page.startswith("notebooks/")}
    assert not pages - mapped, f"{', '.join(pages - mapped)}: {add}"
    assert not mapped - pages, f"MAP names notebooks that are not there: {', '.join(mapped - pages)}"
    named = [name for *_, names in readme.MAP for name in names]
    recorded = {path.parent.name for path in (repository() / "results" / "paper").glob("*/*.json")}
    assert len(named) == len(set(named)) and set(named) <= EXPERIMENTS.keys()
    assert not recorded - set(named), f"{', '.join(recorded - set(named))}: {add}"


def test_marks_that_are_missing_are_named():
    with pytest.raises(GPVIError, match="no <!-- map -->"):
        readme.updated("# gpvi\n")


def test_only_what_is_between_the_marks_changes():
    text = "before\n<!-- map -->\nof yesterday\n<!-- /map -->\n<!-- scores -->\n<!-- /scores -->\nafter"
    text = text.replace("<!-- scores -->\n", "<!-- scores -->\n\n")
    new = readme.updated(text)
    assert new.startswith("before\n<!-- map -->\n| In the paper |") and new.endswith("<!-- /scores -->\nafter")
    assert "of yesterday" not in new and readme.updated(new) == new


ROW = {"item": "gpvi/table5/2d", "metric": "sigma_error", "method": "gpvi", "setting": "printed"}
ROW |= {"paper_mean": 0.14, "paper_sd": 0.08, "ours_mean": 0.0365, "ours_sd": 0.0853}
ROW |= {
    "ours_median": 0.0091,
    "ours_min": 0.0034,
    "ours_max": 0.279,
    "ratio": 0.26,
    "ratio_low": 0.0401,
    "ratio_high": 1.69,
    "n_seeds": 10,
}
ROW |= {"steps": 10_000, "printed_steps": 50_000}


def test_a_row_shows_the_length_the_median_the_range_and_both_verdicts():
    both = readme._line(SimpleNamespace(**ROW, verdict="inconclusive", verdict_median="lower error"))
    assert both == (
        "| gpvi/table5/2d | sigma_error | gpvi | printed | 0.14 ± 0.08 | 0.0365 ± 0.085 | 10 | 10,000 / 50,000 "
        "| 0.0091 [0.0034, 0.279] | 0.26 [0.04, 1.7] | inconclusive (median: lower error) |"
    )
    alone = ROW | {"ours_sd": math.nan, "n_seeds": 1, "printed_steps": pandas.NA}
    one = readme._line(SimpleNamespace(**alone, verdict="agrees", verdict_median="agrees"))
    assert one.endswith("| 0.14 ± 0.08 | 0.0365 | 1 | 10,000 |  | 0.26 [0.04, 1.7] | agrees |")
    chainless = readme._line(SimpleNamespace(**alone | {"steps": pandas.NA}, verdict="a", verdict_median="a"))
    assert chainless.endswith("| 1 |  |  | 0.26 [0.04, 1.7] | a |")


def test_rows_with_two_verdicts_are_counted():
    text = readme.scores()
    table = [line for line in text.splitlines() if line.startswith("| ") and "(median: " in line]
    assert f"In {len(table)} rows our median has another" in text and table


def run_snippet(heading, monkeypatch, folder):
    """The names that the Python code below a heading defines, run in `folder` with 20 steps of training."""
    code = re.search(rf"## {heading}\n.*?```python\n(.*?)```", TEXT, re.DOTALL)[1]
    short = code.replace("steps=2_000", "steps=20")
    assert short != code
    monkeypatch.chdir(folder)
    names = {}
    exec(short, names)
    return names


def test_the_snippet_for_a_density_runs(monkeypatch, tmp_path):
    names = run_snippet("Use it on your own density", monkeypatch, tmp_path)
    assert names["samples"].shape == (1_000, 20) and names["samples"].isfinite().all()


def test_the_snippet_for_a_model_runs_and_its_file_brings_the_sampler_back(monkeypatch, tmp_path):
    names = run_snippet("Use it on your own model", monkeypatch, tmp_path)
    predictive, low, high = names["predictive"], names["low"], names["high"]
    assert low.shape == (len(names["x_test"]),) and (low < predictive.mean).all() and (predictive.mean < high).all()
    held = predictive.cdf(high) - predictive.cdf(low)
    torch.testing.assert_close(held, torch.full_like(held, 0.9), rtol=0, atol=1e-4)  # bisected in float32
    assert predictive.stddev.shape == predictive.log_prob(names["data"].test_targets.float()).shape == low.shape
    again = load_sampler(tmp_path / "posterior.safetensors")
    drawn = [sampler.sample(3, torch.Generator().manual_seed(1)) for sampler in (again, names["sampler"])]
    assert torch.equal(*drawn)
