"""What notebook 01 says of its own runs, which are live: held to its figures' data and to its printed tables."""

import json
import re

import nbformat
import numpy as np
import pytest
from of_records import Runs

from gpvi_lib import paths
from gpvi_lib.experiments import benchmark

(NOTEBOOK,) = paths.notebooks_root().glob("01-*.ipynb")
CELLS = {cell.id: cell for cell in nbformat.read(NOTEBOOK, as_version=4).cells}
PROSE = " ".join(" ".join(cell.source.split()) for cell in CELLS.values() if cell.cell_type == "markdown")


def panel(figure, number):
    return json.loads((paths.repository() / "figures" / "paper" / f"01-{figure}.json").read_text())["axes"][number]


def lines(figure, number):
    return {line.get("label"): np.array(line["y"]) for line in panel(figure, number)["lines"]}


def printed(cell):
    """The text of a cell's outputs, tables as Markdown."""
    found = CELLS[cell].outputs
    return "\n".join(output.get("text", "") or output.get("data", {}).get("text/markdown", "") for output in found)


def cosines():
    return [float(value) for value in re.findall(r"(\d\.\d\d) ±", printed("nb01-28"))]


def test_the_printed_formula_is_off_by_27_percent():
    assert "relative error 0.27" in printed("nb01-07") and PROSE.count("off by 27 %") == 2


def test_cosines_along_training():
    at_the_papers = cosines()[::2]  # then the one at half the bandwidth
    assert len(at_the_papers) == 10 and PROSE.count(f"{min(at_the_papers):.2f} to {max(at_the_papers):.2f}") == 2
    assert f"{min(at_the_papers):.2f} to {max(at_the_papers):.2f} over training" in printed("nb01-35")
    assert f"Cosine {min(cosines()):.2f} to {max(cosines()):.2f} all along" in CELLS["nb01-31"].source


def test_half_the_bandwidth_is_closer_in_every_row():
    assert (np.array(cosines()[1::2]) > cosines()[::2]).all()
    assert "The half bandwidth smooths less and is the closer one in every row." in PROSE


def test_products_with_the_output_layer():
    pattern = r"\| (direct|amortised SVGD|GPVI, block inverse).*\| +([\d.]+) +\|"
    direct, svgd, block = (float(value) for _, value in re.findall(pattern, printed("nb01-33")))
    kernel = 3 * 16 / 32  # the kernel's own products, 3 n / ℓ of the table
    assert f"include the kernel's products, $3n/\\ell = {kernel}$" in PROSE and svgd - kernel == direct
    said = f"takes {direct:.0f} products with the output layer, GPVI {block - kernel:.0f}, but whole steps of LeNet-5"
    assert f"{said} take longer." in PROSE
    told = f"it takes {direct:.0f} products with the output layer, as amortised SVGD with one batch does; "
    told += f"GPVI takes {block - kernel:.0f}"
    assert told in PROSE


def test_in_time_the_direct_gradient_is_not_the_cheapest():
    bench = json.loads((paths.repository() / "results" / "bench" / "amd-epyc-2-threads.json").read_text())
    ratio = {(row["method"], row["dim"]): row.get("ratio") for row in bench["steps"]}
    direct, block = ([ratio[method, d] for d in (61_706, 188_810)] for method in ("gpvi_exact_density", "gpvi_block"))
    text = f"{direct[0]:.1f} times the time of amortised SVGD with two batches, "
    text += f"GPVI with the block inverse {block[0]:.1f} times"
    assert f"the direct gradient took {text}" in PROSE and max(block) < min(direct)
    said = (
        f"A whole direct step took {min(direct):.1f} to {max(direct):.1f} times that of amortised SVGD with two batches"
    )
    assert said in PROSE
    assert f"in time it is dearer, {direct[0]:.1f} against {block[0]:.1f} times" in printed("nb01-35")


def test_at_the_papers_bandwidth_gpvi_is_as_noisy_or_less():
    found = lines("two-gradients", 1)
    assert (found["GPVI, paper h"] < 1.03 * found["direct"]).all()
    assert r"At the paper's h as noisy as direct,\nor less, from twice the draws" in CELLS["nb01-31"].source


def test_at_equal_draws_the_direct_gradient_is_the_less_noisy_one():
    found = lines("two-gradients", 1)
    pairs = list(zip(found["GPVI, paper h"][1:4], found["direct"][2:5], strict=True))  # GPVI draws 2 n
    assert all(direct < gpvi for gpvi, direct in pairs)
    (a, b), (c, d), (e, f) = pairs
    assert f"{a:.2f} against {b:.2f} at 32 draws, {c:.2f} against {d:.2f} at 64, {e:.2f} against {f:.2f} at" in PROSE


def test_the_printed_formula_runs_away_from_80_degrees_and_comes_back():
    track = lines("transposition", 2)["$J^{-1}$, printed"]
    assert track.max() > 0.9 and track[100:].max() < 0.1
    assert "still the printed formula first runs away from there, and comes back (Figure 01.2, right)" in PROSE


def test_the_path_stops_short():
    ends = {line.get("label"): np.array(line["x"]) for line in panel("key", 1)["lines"]}
    curve = panel("key", 1)["lines"][0]
    assert len(ends["GPVI: ends of 20 runs"]) == 20
    assert ends["GPVI: ends of 20 runs"].mean() == pytest.approx(0.28, abs=0.005)
    assert ends["GPVI: ends of 20 runs"].max() < 0.3
    assert np.interp(0.28, curve["x"], curve["y"]) == pytest.approx(0.69, abs=0.005)
    left, _, width, _ = panel("key", 1)["patches"][0]["x_y_width_height"]  # between the two zeros
    assert left == pytest.approx(0.28, abs=0.005) and left + width == pytest.approx(0.73, abs=0.005)
    said = f"has a stable zero at θ = {left:.2f}, with 0.69 nats to go, and an unstable one at {left + width:.2f}."
    assert f"{said} All 20 runs from θ = 0.6 go back to 0.28" in PROSE


def test_the_printed_formula_keeps_a_wrong_covariance():
    track = lines("key", 0)["printed $J^{-1}$"]
    assert track.min() > 0.4 and track[-50:].mean() == pytest.approx(0.65, abs=0.03) and round(track.max(), 1) == 0.7
    assert "the flow's limit for J^-1 0.5" in printed("nb01-09")
    assert "stays near the 0.5 nats of the flow's limit, then drifts, here up to about 0.7." in PROSE


def test_variances_with_one_and_two_batches():
    assert "two batches 1.1, one batch 0.2" in printed("nb01-21")
    assert "with one batch in both roles the variance ends at 0.2 of 1, with two at 1.1." in PROSE


def test_one_batch_of_32():
    found = lines("two-gradients", 2)
    assert found["direct"][2] == pytest.approx(0.4, abs=0.05) == found["GPVI, paper h"][2]
    direct, paper, half = (found[name][1:] for name in ("direct", "GPVI, paper h", "GPVI, half h"))  # from 16 on
    assert (direct > paper).all() and (direct - paper < 0.05).all() and (half < paper).all()
    noise = lines("two-gradients", 1)
    less = 1 - noise["GPVI, paper h"] / noise["direct"]
    assert (np.abs(less[1:3]) < 0.03).all() and ((0.125 < less[3:]) & (less[3:] < 0.145)).all()
    assert "one batch of 32 has a mean cosine of about 0.4 with the direct gradient, for either method." in PROSE
    assert "direct estimate is the closer one, by less than 0.05, and the half bandwidth is last." in PROSE
    assert "equally noisy at 16 and 32 samples, within 3 %. At 64 and 128 GPVI's" in PROSE
    assert "has {:.0f} to {:.0f} % less noise".format(*sorted(100 * less[3:])) in PROSE


def test_from_085_every_run_arrives():
    assert "GPVI from θ = 0.85: 20 of 20 runs end near θ = 1" in printed("nb01-25b-4")
    assert "20 of 20 runs from θ = 0.6 (0 from 0.85)" in PROSE and "From 0.85 all 20 arrive" in PROSE


def test_the_path_has_the_bandwidth_of_the_first_example():
    (bandwidth,) = re.findall(r"bandwidth ([\d.]+); KL smallest", printed("nb01-25"))
    assert f"GPVI at bandwidth {bandwidth} stops short" in PROSE and PROSE.count(f"bandwidth {bandwidth}") == 3


def test_a_wide_kernel_nearly_avoids_the_first_example():
    found = printed("nb01-25")
    assert "bandwidth 0.26; KL smallest at σ = 1.8" in found
    stable = re.findall(r"bandwidth +([\d.]+): stable at σ = ([\d.]+)", found)
    assert dict(stable) == {"0.26": "0.3", "1.00": "0.3", "4.00": "1.6", "16.00": "1.7"}
    said = "with $h$ = 4 or 16 in place of 0.26 the stable zero is at σ = 1.6 or 1.7 instead of 0.3 (quadrature; best:"
    assert f"{said} 1.8)." in PROSE


def test_the_direct_gradient_is_ahead_on_most_small_posteriors_and_not_on_figure_1():
    runs, table = Runs("benchmark"), Runs("bayesian-linear-regression")
    direct, gpvi = (
        [runs.metric(f"{n}_{m}", "error").mean() for n in benchmark.TARGETS] for m in ("exact_density", "gpvi")
    )
    direct.append(table.metric("gpvi_exact_density", "sigma_error").mean())
    gpvi.append(table.metric("gpvi_exact_jac_best", "sigma_error").mean())
    assert (np.array(direct) < gpvi).sum() == 4 and len(gpvi) == 5
    figure = Runs("smooth-figures")
    direct, gpvi = (figure.metric(f"figure1_{m}", "w1") for m in ("gpvi_exact_density", "gpvi_best"))
    assert gpvi.mean() < direct.mean() and (gpvi < direct).sum() == 2
    direct, gpvi = (figure.metric(f"figure1_{m}", "elbo") for m in ("gpvi_exact_density", "gpvi_best"))
    assert (direct > gpvi).all()
    relu = Runs("one-dimensional-regression")
    assert (relu.metric("gpvi_exact_density", "w1") < relu.metric("gpvi_best", "w1")).all()
    said = "the direct one is ahead on most small posteriors (26; on Figure 1 not by W₁ with smooth units: 00, F); "
    assert said in CELLS["nb01-35"].source
