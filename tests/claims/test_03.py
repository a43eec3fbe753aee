"""What notebook 03 says of its records: time and memory of a direction and of a step."""

import json

import numpy as np
import torch
from of_records import Runs, arrays, code, told, values

from gpvi_lib import RBF, Generator, bicgstab, paths

CELLS = " ".join(" ".join(code("03")).split())
"""The code on one line: cells write the titles of figures."""


def at(name, key, dim):
    """A number of one back end at a dimension, the largest if ``dim`` is None."""
    (found,) = arrays("inverse-cost", name)
    where = -1 if dim is None else (found["dim"] == dim).nonzero()[0, 0]
    return float(found[key][where])


def test_a_dense_direction_takes_ten_times_as_long_at_a_thousand_dimensions():
    slower = at("dense", "direction_ms", 1_000) / at("block", "direction_ms", 1_000)
    assert slower > 10
    assert f"for the dense inverse: {slower:.0f} times slower than block at $d = 1{{,}}000$ (stripped)," in told("03")


def test_the_helper_needs_ten_times_the_memory_of_the_block_solution_at_the_largest_size():
    assert at("helper", "bytes", None) > 10 * at("block", "bytes", None)
    assert "Helper: its weights fill the memory" in CELLS
    assert r"The helper's weights are $2\cdot512\,d$ numbers, sixteen times the generator's," in told("03")


def test_a_step_of_the_block_solution_lies_between_the_exact_density_and_the_iterative_ones():
    names = ("helper", "bicgstab", "block", "exact_density", "amortized_svgd")
    step = {name: at(name, "step_ms", None) for name in names}
    assert min(step["helper"], step["bicgstab"]) > 3 * step["block"]
    assert 1.5 * step["exact_density"] < step["block"] < 2 * step["amortized_svgd"]
    assert min(step["helper"], step["bicgstab"]) > 40 * step["amortized_svgd"]
    assert "take more than forty times as long as amortised SVGD." in told("03")
    share = step["exact_density"] / step["block"]
    assert abs(share - 0.6) < 0.05 and "takes about three fifths of the time of a step with the block" in told("03")


def test_in_a_whole_step_the_helper_multiplies_the_time_and_the_block_solution_adds_about_a_third():
    def extra(setting):
        return [values("overhead", f"gpvi_{name}{setting}", "extra_time_fraction")[0] for name in ("mnist", "cifar10")]

    assert min(extra("")) > 3 and max(extra("_best")) < 0.45
    assert "The block inverse adds a fifth to two fifths; on this CPU the helper makes a step about five" in told("03")


def test_from_sixty_thousand_weights_up_a_whole_step_takes_1_2_to_1_4_times_one_of_amortised_svgd():
    for kind in ("extra_time_fraction", "extra_time_fraction_independent"):
        extra = [values("overhead", f"gpvi_{name}_best", kind)[0] for name in ("mnist", "cifar10")]
        assert 0.15 < min(extra) and max(extra) < 0.45
    assert "From 60,000 weights up a whole step takes 1.1 to 1.4 times one of amortised SVGD:" in told("03")


def shares(name, dims=None):
    """Time of a direction over that of the block inverse, at each dimension."""
    (ours,), (block,) = arrays("inverse-cost", name), arrays("inverse-cost", "block")
    return (ours["direction_ms"] / block["direction_ms"])[[d in (dims or block["dim"]) for d in block["dim"].tolist()]]


def test_the_helper_and_bicgstab_over_block():
    helper, text = shares("helper"), told("03")
    assert f"the helper takes {int(helper.min())} to {float(helper.max()):.0f} times as long as the block" in text
    small, middle, large = (
        shares("bicgstab", dims) for dims in ((10, 30, 100, 300), (1_000,), (3_000, 10_000, 30_000, 61_706))
    )
    assert (
        f"{small.min():.1f} to {small.max():.1f} times as long as block's up to $d = 300$, {float(middle):.0f} times "
        "at 1,000, and "
        f"{float(large.min()):.0f} to {float(large.max()):.0f} times from 3,000 on"
    ) in text


def test_a_step_over_amortised_svgds_and_its_memory():
    (base,), text = arrays("inverse-cost", "amortized_svgd"), told("03")
    step, quartiles = float(base["step_ms"][-1]), float(base["step_iqr_ms"][-1])
    block, density = (at(name, "step_ms", None) / step for name in ("block", "exact_density"))
    memory = at("block", "bytes", None) / float(base["bytes"][-1])
    assert (
        f"adds {block - 1:.0%} to the time".replace("%", " %")
        + " of amortised SVGD's step with one batch "
        + f"(whose quartiles are {quartiles / step:.0%} apart) and {memory - 1:.0%} to its memory".replace("%", " %")
    ) in text
    assert f"{1 - density:.0%} below amortised SVGD".replace("%", " %") in text
    assert f"The stripped {block:.2f} leaves out" in text
    assert f"a step costs {density:.2f} of amortised SVGD's with one batch, the block inverse's {block:.2f}" in text
    assert f"the ratios are {block:.2f} and {density:.2f}, and helper and BiCGSTAB" in text


def test_dense_takes_three_times_its_jacobians():
    assert 2.9 < at("dense", "bytes", None) / (4 * 10 * 3_000**2) < 3.3
    jacobians = f"{4 * 10 * 3_000**2 / 1e9:.2f} GB"
    assert f"the ten Jacobians take {jacobians}, and the whole step three times that;" in told("03")


def test_the_helper_multiplies_a_whole_step_by_more_than_five():
    for kind in ("extra_time_fraction", "extra_time_fraction_independent"):
        assert min(values("overhead", f"gpvi_{name}", kind)[0] for name in ("mnist", "cifar10")) > 4
    assert "at the paper's sizes the helper multiplies the time of a step;" in told("03")


def test_on_the_four_class_problem_a_step_of_block_takes_2_97_times_one_of_amortised_svgd():
    table = (paths.repository() / "results" / "bench" / "amd-epyc-2-threads.md").read_text()
    assert "| 4-class BNN               | 184    | GPVI, block                | 13.8  | 2.97 " in table
    said = "a step with the block inverse takes 2.97 times one of amortised SVGD, on the exact density 3.22 times"
    assert said in told("03")


def test_a_helper_of_width_512_leaves_0_99_on_mnist():
    width, d = Runs("overhead").record("gpvi_mnist").config["inverse"]["width"], 61_706
    assert f"{(1 - (256 + width + 1) / d) ** 0.5:.2f}" == "0.99"
    assert "relative residual below 0.99 on fresh noise" in told("03")


DIMS = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 61_706)
BENCH = "amd-epyc-2-threads.md"


def whole_step(size, method):
    """Ratio of a whole step to one of amortised SVGD in the committed benchmark."""
    lines = (paths.repository() / "results" / "bench" / BENCH).read_text().split("## The floor")[0].splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    (found,) = (row[4] for row in rows if row[0] == size and row[2] == method)
    return found


def test_whole_steps_of_block_and_of_the_exact_density():
    table = {
        "linear regression": ("1.17", "0.735"),
        "linear regression, d = 20": ("1.82", "1.19"),
        "4-class BNN": ("2.97", "3.22"),
        "MLP, d = 1,000": ("1.6", "1.73"),
        "MLP, d = 10,000": ("1.13", "1.1"),
        "LeNet-5 (MNIST)": ("1.12", "1.72"),
        "CNN (CIFAR-10)": ("1.11", "1.52"),
    }
    found = {size: (whole_step(size, "GPVI, block"), whole_step(size, "GPVI, exact density")) for size in table}
    assert found == table
    d = ("3", "20", "184", "1,000", "10,000", "61,706", "188,810")
    for n, (block, exact) in zip(d, found.values(), strict=True):  # 0.735 is rounded from 0.7346
        assert f"| {n} | {float(block):.2f} | " + (f"{float(exact):.2f} |" if n != "3" else "0.73 |") in told("03")
    dearer = sum(float(exact) > float(block) for block, exact in found.values())
    cheaper = sum(float(exact) < 1 for _, exact in found.values())
    assert (dearer, cheaper) == (4, 1)
    said = "dearer than the block inverse at four sizes of seven, and cheaper than amortised SVGD at one."
    assert said in told("03")
    block, exact = zip(*(found[size] for size in ("LeNet-5 (MNIST)", "CNN (CIFAR-10)")), strict=True)
    said = "whole steps (LeNet-5, CNN) over two batches cost {} and {}, the block inverse's {} and {};"
    assert said.format(*exact, *block) in told("03")
    assert "the exact density {:.1f} to {:.1f} times.".format(*sorted(map(float, exact))) in told("03")


def test_overhead_adds_0_19_to_0_38():
    kinds = ("extra_time_fraction", "extra_time_fraction_independent")
    extra = [values("overhead", f"gpvi_{name}_best", kind)[0] for name in ("mnist", "cifar10") for kind in kinds]
    assert (f"{1 + min(extra):.2f}", f"{1 + max(extra):.2f}") == ("1.19", "1.38")
    assert f"{1 + min(extra):.2f} to {1 + max(extra):.2f} in the records `overhead`, 1.12 and 1.11 in" in told("03")


def test_dense_at_1000_and_at_3000():
    slower = at("dense", "direction_ms", 1_000) / at("block", "direction_ms", 1_000)
    memory = at("dense", "bytes", 3_000) / 1e9
    said = f"{slower:.0f} times slower than block at $d = 1{{,}}000$ (stripped), and {memory:.1f} GB for a step"
    assert said in told("03")


def test_a_direction_of_block_over_amortised_svgds():
    ratios = {dim: at("block", "direction_ms", dim) / at("amortized_svgd", "direction_ms", dim) for dim in DIMS}
    said = (
        f"{ratios[100]:.1f} times as long as amortised SVGD for a direction at $d = 100$, {ratios[1_000]:.1f} times at "
        f"1,000 and {ratios[61_706]:.1f} times at 61,706"
    )
    assert said in told("03") and ratios[100] > 0.98 * max(ratios.values())
    assert "Block: {ratio.min():.1f} to {ratio.max():.1f} times amortised SVGD, one batch" in CELLS


def test_the_helper_of_mnist_explains_at_most_1_25_percent():
    width = Runs("overhead").record("gpvi_mnist").config["inverse"]["width"]
    assert f"{100 * (256 + width + 1) / 61_706:.2f}" == "1.25"
    assert "**as printed the helper explains at most 1.25 % of the squared length" in told("03")


@torch.no_grad()
def test_with_eigenvalues_around_the_origin_bicgstab_breaks_down_in_float64_too():
    rng = torch.Generator().manual_seed(0)
    f = Generator(80, 40, (), noise_scale=1.0, rng=rng)
    left, right = (torch.linalg.qr(torch.randn(40, 40, generator=rng))[0] for _ in range(2))
    f.output.weight[:40] = left @ right - torch.eye(40)
    f.double()
    source, query = f.noise(10, rng).double(), f.noise(10, rng).double()
    u = RBF()(source, query)[1][..., None] * (source[:, None] - query)
    result = bicgstab(f.linearize(source).vjp, u, tol=1e-10, max_iterations=400)
    assert result.breakdown.numel() == 100 and result.breakdown.all()
    said = "Float64 does not help: with such a generator at cond = 1 all 100 systems break down there too."
    assert said in told("03")


def test_over_independent_batches_a_whole_step_takes_1_11_to_1_25_times_and_over_one_batch_1_35_and_1_38():
    expected = {"extra_time_fraction_independent": ("1.25", "1.19"), "extra_time_fraction": ("1.35", "1.38")}
    for kind, pair in expected.items():
        extra = [values("overhead", f"gpvi_{name}_best", kind)[0] for name in ("mnist", "cifar10")]
        assert tuple(f"{1 + value:.2f}" for value in extra) == pair
    later = [whole_step(size, "GPVI, block") for size in ("LeNet-5 (MNIST)", "CNN (CIFAR-10)")]
    said = "took 1.11 to 1.25 times one of amortised SVGD with independent batches: 1.25 and 1.19 in the records above,"
    assert f"{said} {later[0]} and {later[1]} in a [benchmark]" in told("03")
    assert "Over amortised SVGD with one batch the ratios are 1.35 and 1.38." in told("03")
    bench = json.loads((paths.repository() / "results" / "bench" / BENCH).with_suffix(".json").read_text())["steps"]
    slower = [row["ms"] for row in bench if row["method"] == "amortized_svgd" and row["dim"] in (61_706, 188_810)]
    base = [values("overhead", f"gpvi_{name}_best", "independent_ms")[0] for name in ("mnist", "cifar10")]
    assert "({:.0f} and {:.0f} ms instead of {:.0f} and {:.0f})".format(*slower, *base) in told("03")
    assert "in whole steps the block inverse took 1.11 to 1.25 times the time of amortised SVGD" in told("03")


def test_a_whole_step_on_mnist_takes_five_times_as_long_with_the_helper():
    steps = {name: 1 + values("overhead", name, "extra_time_fraction")[0] for name in ("gpvi_mnist_best", "gpvi_mnist")}
    assert [f"{step:.2f}" for step in steps.values()] == ["1.35", "5.29"]
    assert "on this CPU the helper makes a step about five times as long" in told("03")


def test_on_mnist_over_independent_batches_a_step_takes_112_to_125_and_with_the_helper_46_to_50():
    kind = "extra_time_fraction_independent"
    block, helper = (1 + values("overhead", name, kind)[0] for name in ("gpvi_mnist_best", "gpvi_mnist"))
    later, helper_later = (float(whole_step("LeNet-5 (MNIST)", f"GPVI, {name}")) for name in ("block", "helper"))
    assert later < block and helper_later < helper
    text = (
        f"took {later:.2f} to {block:.2f} times amortised SVGD's with independent batches, with the helper "
        f"{helper_later:.1f} to {helper:.1f}."
    )
    assert text in told("03")


def test_the_helper_makes_a_step_about_five_times_as_long():
    sizes, kinds = ("mnist", "cifar10"), ("extra_time_fraction", "extra_time_fraction_independent")
    found = [1 + values("overhead", f"gpvi_{size}", kind)[0] for size in sizes for kind in kinds]
    found += [float(whole_step(size, "GPVI, helper")) for size in ("LeNet-5 (MNIST)", "CNN (CIFAR-10)")]
    assert f"about five times as long ({min(found):.1f} to {max(found):.1f} times" in told("03")


def test_block_adds_on_mnist_about_what_the_paper_says_of_the_helper_and_on_cifar_at_most_half():
    alone, one = (
        values("overhead", "gpvi_mnist_best", kind)[0]
        for kind in ("extra_time_fraction_independent", "extra_time_fraction")
    )
    assert f"({alone:.2f} and {one:.2f} over independent batches and one; the paper 0.28)" in told("03")
    assert values("overhead", "gpvi_cifar10_best", "extra_time_fraction")[0] < 0.78 / 2
    assert "and at most half of it on CIFAR-10." in told("03")


def test_beyond_cond_10_block_is_the_most_accurate_in_the_figure():
    panel = json.loads((paths.repository() / "figures" / "paper" / "03-conditioning.json").read_text())["axes"][0]
    error = {line["label"]: np.array(line["y"]) for line in panel["lines"] if line.get("label")}
    beyond = np.array(panel["lines"][0]["x"]) > 10.01
    for where in ("anywhere", "positive"):
        others = np.minimum(error[f"dense, {where}"], error[f"BiCGSTAB, {where}"])
        assert (error[f"block, {where}"] < others)[beyond].all() and beyond.sum() == 10
    assert "Beyond cond = 10 block is the most accurate; BiCGSTAB can fail anywhere" in CELLS
    assert "The block solution is the more accurate one where the condition number is large:" in told("03")


def test_the_kernels_own_products_are_few_at_the_printed_sizes():
    config = Runs("overhead").record("gpvi_mnist_best").config
    features = config["sampler"]["hidden"][-1]
    width = f"{features:,}".replace(",", "{,}")
    share = 3 * config["samples"] / features
    assert f"{share:.2f} at $n = {config['samples']}$, $\\ell = {width}$" in told("03")
