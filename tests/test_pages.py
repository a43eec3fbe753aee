"""The generated parts of docs/ are what the records say, and pages lead to everything."""

import math
import re
from types import SimpleNamespace

import pandas
import pytest

from gpvi_lib.errors import GPVIError
from gpvi_lib.experiments import EXPERIMENTS
from gpvi_lib.paths import repository
from gpvi_lib.report import pages, scoreboard

DOCS = repository() / "docs"


@pytest.mark.parametrize("name", pages.PAGES)
def test_the_generated_parts_are_fresh(name):
    text = (DOCS / f"{name}.md").read_text()
    assert pages.updated(name, text) == text, "run: python -m gpvi_lib scoreboard"


def test_the_map_leads_to_every_notebook_and_names_every_record_once():
    add = "add it to MAP in gpvi_lib/report/pages.py, then run: python -m gpvi_lib scoreboard"
    books = {path.stem for path in repository().glob("notebooks/*.ipynb")}
    mapped = {page.removeprefix("notebooks/") for _, page, _ in pages.MAP if page.startswith("notebooks/")}
    assert not books - {"00-overview"} - mapped, f"{', '.join(books - mapped)}: {add}"
    assert not mapped - books, f"MAP names notebooks that are not there: {', '.join(mapped - books)}"
    told = re.findall(r"^\| \[[^]]*\]\(../notebooks/([^)]*).ipynb\)", (DOCS / "map.md").read_text(), re.MULTILINE)
    assert set(told) == books, f"the first table of docs/map.md misses {', '.join(books - set(told))}"
    named = [name for *_, names in pages.MAP for name in names]
    assert len(named) == len(set(named)) and set(named) <= EXPERIMENTS.keys()
    assert not EXPERIMENTS.keys() - set(named), f"{', '.join(EXPERIMENTS.keys() - set(named))}: {add}"


def test_marks_that_are_missing_are_named():
    with pytest.raises(GPVIError, match=r"docs/map.md has no <!-- generated -->"):
        pages.updated("map", "# Where everything is\n")


def test_only_what_is_between_the_marks_changes():
    text = "before\n<!-- generated -->\nof yesterday\n<!-- /generated -->\nafter"
    new = pages.updated("map", text)
    assert new.startswith("before\n<!-- generated -->\n| In the paper |") and new.endswith("<!-- /generated -->\nafter")
    assert "of yesterday" not in new and pages.updated("map", new) == new


def test_links_to_figures_have_their_names():
    (row,) = [line for line in pages.where().splitlines() if "13-bayesian-linear-regression" in line]
    assert "[helper residual](../figures/paper/13-helper-residual.png), [hmc sampling error](" in row
    assert row.count("../figures/paper/") == len(list(repository().glob("figures/paper/13-*.png")))


ROW = {"item": "gpvi/table5/2d", "metric": "sigma_error", "method": "gpvi", "setting": "printed"}
ROW |= {"paper_mean": 0.14, "paper_sd": 0.08, "ours_mean": 0.0365, "ours_sd": 0.0853}
ROW |= {"ours_median": 0.0091, "ours_min": 0.0034, "ours_max": 0.279, "n_seeds": 10}
ROW |= {"ratio": 0.26, "ratio_low": 0.0401, "ratio_high": 1.69}
ROW |= {"steps": 10_000, "printed_steps": 50_000}


def test_a_row_shows_the_length_the_median_the_range_and_both_verdicts():
    both = pages._line(SimpleNamespace(**ROW, verdict="inconclusive", verdict_median="lower error"))
    assert both == (
        "| 2d | sigma error | GPVI | printed | 0.14 ± 0.08 | 0.0365 ± 0.085 | 10 | 10,000 / 50,000 "
        "| 0.0091 [0.0034, 0.279] | 0.26 [0.04, 1.7] | inconclusive (median: lower error) |"
    )
    alone = ROW | {"ours_sd": math.nan, "n_seeds": 1, "printed_steps": pandas.NA}
    one = pages._line(SimpleNamespace(**alone, verdict="agrees", verdict_median="agrees"))
    assert one.endswith("| 0.14 ± 0.08 | 0.0365 | 1 | 10,000 |  | 0.26 [0.04, 1.7] | agrees |")
    chainless = pages._line(SimpleNamespace(**alone | {"steps": pandas.NA}, verdict="a", verdict_median="a"))
    assert chainless.endswith("| 1 |  |  | 0.26 [0.04, 1.7] | a |")


def test_rows_with_two_verdicts_are_counted():
    text = pages.scores()
    table = [line for line in text.splitlines() if line.startswith("| ") and "(median: " in line]
    assert f"In {len(table)} rows the verdict on our median" in text and table


def test_every_comparison_has_a_row_in_the_table_of_its_item():
    text = pages.scores()
    (words,) = re.findall(r"^\* All comparisons .*?: (.*)\.$", text, re.MULTILINE)
    counted = sum(int(number) for number in re.findall(r"\d+", words))
    tables = text.split("\n### ")[1:]
    rows = [line for table in tables for line in table.splitlines()[4:] if line]
    board = scoreboard.build("paper")
    ran = board[board["paper_mean"].notna() & (board["n_seeds"] > 0)]
    once = scoreboard.each_once(ran)
    left_out = ran.drop(once.index)
    of_mu = left_out["metric"] == "mu_error"
    assert set(left_out[~of_mu]["item"]) == {"gpvi/table5/2d", "gpvi/table5/5d"} and len(left_out[of_mu]) == 19
    assert len(rows) == len(ran) > len(once) == counted > 100
    assert len({table.splitlines()[0] for table in tables}) == len(tables)
    assert {table.splitlines()[0] for table in tables} >= {
        "GPVI, Table 2",
        "GPVI, section 4.5",
        "LIVI, Tables 1, F.1 and F.2",
    }


LINK = re.compile(r"\]\(([^)\s#]+)(?:#[\w-]*)?\)")


WRITTEN = [*(repository() / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")), *DOCS.glob("*.md")]


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_links_lead_somewhere_and_have_names(path):
    text = path.read_text()
    targets = [target for target in LINK.findall(text) if "://" not in target]
    missing = [target for target in targets if not (path.parent / target).exists()]
    assert not missing, f"{path.name} links to {', '.join(missing)}"
    shown = re.findall(r"\[([^][]*)\]\([^)]*\)", text)
    assert not [name for name in shown if re.fullmatch(r"\d", name)], f"{path.name} has a link called by a digit"
