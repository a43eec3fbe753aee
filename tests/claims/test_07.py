"""What notebook 07 says of its own runs, which are live: held to its figures' data and to its printed tables."""

import json
import math

import nbformat
import numpy as np
import pytest

from gpvi_lib import paths

(NOTEBOOK,) = paths.notebooks_root().glob("07-*.ipynb")
CELLS = {cell.id: cell for cell in nbformat.read(NOTEBOOK, as_version=4).cells}
PROSE = " ".join(" ".join(cell.source.split()) for cell in CELLS.values() if cell.cell_type == "markdown")


def lines(figure, number):
    """Label -> (x, y) of the lines of a panel."""
    text = (paths.repository() / "figures" / "paper" / f"07-{figure}.json").read_text()
    found = json.loads(text)["axes"][number]["lines"]
    return {line.get("label"): (np.array(line["x"]), np.array(line["y"])) for line in found}


def at(figure, number, label, x):
    places, values = lines(figure, number)[label]
    return float(values[places == x][0])


def printed(cell):
    """The text of a cell's outputs, tables as Markdown."""
    found = CELLS[cell].outputs
    return "\n".join(output.get("text", "") or output.get("data", {}).get("text/markdown", "") for output in found)


@pytest.mark.parametrize(("number", "total"), [(0, lambda n: math.log(n)), (1, lambda n: 2 * math.log(n) / (n + 1))])
@pytest.mark.parametrize("n", [10, 50])
def test_particles_rest_at_the_closed_form(number, total, n):
    d, variance = lines("variance-collapse", number)[f"SVGD, n = {n}"]
    wide = d >= n
    np.testing.assert_allclose(variance[wide] * d[wide], total(n), rtol=0.05)


def test_ten_particles_keep_2_3_in_all_and_the_codes_bandwidth_leaves_a_fifth():
    assert math.log(10) == pytest.approx(2.3, abs=0.01)
    assert 2 * math.log(10) / 11 == pytest.approx(0.42, abs=0.005)
    assert 2 / 11 == pytest.approx(0.18, abs=0.005)


def test_one_batch_loses_the_gradient_with_a_kernel_on_all_of_z():
    on_z, on_head = (
        at("kernel-saturation", 2, label, 10_000) for label in ("kernel on all of z", "kernel on $z_{:2}$")
    )
    assert on_z == pytest.approx(0.11, abs=0.005) and on_head == pytest.approx(0.96, abs=0.005)
    assert PROSE.count("0.11 with the true gradient") == PROSE.count("keeps 0.96") + 1 == 2
    assert at("kernel-saturation", 2, "kernel on all of z", 1_000) == pytest.approx(0.5, abs=0.05)


def test_one_batch_is_a_common_shift():
    assert 1 - at("kernel-saturation", 1, "kernel on all of z", 10_000) < 0.003


def test_the_kernel_of_the_mnist_network_differs_by_a_percent():
    assert math.log(10) * math.sqrt(2 / 61_706) == pytest.approx(0.013, abs=0.0005)


def test_svgd_seems_to_stop_on_the_banana():
    found = printed("nb07-25")
    assert "seemed to stop: Σ error 0.4" in found and "1,500 more steps: Σ error 0.2" in found
    errors = {row.split("|")[2].strip(): row.split("|")[3].strip() for row in printed("nb07-23").splitlines()[2:7]}
    assert float(errors["SVGD"]) > 3 * float(errors["GFSF"])
