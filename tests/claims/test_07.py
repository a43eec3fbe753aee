"""What notebook 07 says of its own runs, which are live: held to its figures' data and to its printed tables."""

import json
import math
import re

import nbformat
import numpy as np
import pytest
import test_14
import torch
from of_records import Runs, code

from gpvi_lib import (
    GFSF,
    GPVI,
    RBF,
    SVGD,
    Adam,
    Banana,
    Gaussian,
    GaussianMixture,
    Generator,
    Particles,
    ParVI,
    SteinCritic,
    fit,
    paths,
    score,
)
from gpvi_lib.metrics import ksd_u_statistic, relative_error
from gpvi_lib.networks import lenet5
from gpvi_lib.report import scoreboard

(NOTEBOOK,) = paths.notebooks_root().glob("07-*.ipynb")
CELLS = {cell.id: cell for cell in nbformat.read(NOTEBOOK, as_version=4).cells}
CRITICS = ("ksd", "amortized_ksd")
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
    assert n != 10 or (d[wide].min(), d[wide].max()) == (10, 10_000)
    assert "10 \\le d \\le 10{,}000$, ten particles of SVGD kept" in PROSE


def test_ten_particles_keep_2_3_in_all_and_the_codes_bandwidth_leaves_a_fifth():
    assert math.log(10) == pytest.approx(2.3, abs=0.01)
    assert 2 * math.log(10) / 11 == pytest.approx(0.42, abs=0.005)
    assert 2 / 11 == pytest.approx(0.18, abs=0.005)
    assert rf"Ten particles share a variance of $\log 10 = {math.log(10):.1f}$ in all" in PROSE
    assert f"With the code's convention it is $2\\log(10)/11 = {2 * math.log(10) / 11:.2f}$" in PROSE
    assert f"and {2 / 11:.2f} times as much with half the bandwidth." in PROSE


def test_one_batch_loses_the_gradient_with_a_kernel_on_all_of_z():
    on_z, on_head = (
        at("kernel-saturation", 2, label, 10_000) for label in ("kernel on all of z", "kernel on $z_{:2}$")
    )
    assert on_z == pytest.approx(0.1, abs=0.05) and on_head == pytest.approx(0.96, abs=0.005)
    assert (
        PROSE.count("about 0.1 with the true gradient's first $2\\times2$ block") == 2
        and "a kernel on $z_{:2}$ 0.96 (1 seed)" in PROSE
    )
    assert at("kernel-saturation", 2, "kernel on all of z", 1_000) == pytest.approx(0.5, abs=0.05)
    assert "It is much larger than the 0.5 of $n = 50$." in PROSE


def test_the_mean_of_all_batches_has_a_cosine_of_0_63():
    one, error, mean = map(
        float,
        re.search(r"of one batch (\S+) \(standard error (\S+)\), of the mean (\S+)", printed("nb07-49a")).groups(),
    )
    assert abs(one - 0.1) < 0.05 and error < 0.1 and mean == pytest.approx(0.63, abs=0.02)
    assert f"At $d = 10{{,}}000$ a hundred are too few: {mean:.2f} here" in PROSE


def test_with_the_head_kernel_only_the_share_of_the_shift_grows_with_d():
    label = "kernel on $z_{:2}$"
    assert at("kernel-saturation", 1, label, 10_000) == pytest.approx(0.35, abs=0.005)
    spread, cosine = (lines("kernel-saturation", panel)[label][1] for panel in (0, 2))
    assert np.ptp(spread) < 0.1 * spread.mean() and cosine.min() > 0.9
    assert "With the kernel on $z_{:k}$ the kernel's spread and this block's cosine do not notice $d$." in PROSE
    assert (np.diff(lines("kernel-saturation", 1)[label][1]) > 0).all()
    assert "The share of the shift grows with this kernel too, to 0.35." in PROSE


def test_with_the_codes_bandwidth_the_variance_falls_from_n_4_on():
    total = [2 * math.log(n) / (n + 1) for n in range(2, 60)]
    assert np.argmax(total) == 2 and (np.diff(total)[2:] < 0).all()
    assert "from $n = 4$ on it falls with $n$." in PROSE and "Which $n$ keeps most? Answer: $n = 4$." in PROSE


@pytest.mark.parametrize("n", [10, 25])
def test_four_relu_units_leave_the_critics_loss_without_a_bound_at_every_n(n):
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(n, 2, generator=rng, dtype=torch.float64)
    width = (x[1:, 0] - x[0, 0]).abs().min() / 3
    kinks = x[0, 0] + width * torch.tensor([-2.0, -1.0, 1.0, 2.0], dtype=torch.float64)
    for size in (1.0, 100.0):
        critic = SteinCritic(hidden=(4,), activation="relu")
        hidden, out = (torch.nn.Linear(*shape, dtype=torch.float64) for shape in ((2, 4), (4, 2)))
        with torch.no_grad():
            hidden.weight.copy_(torch.tensor([[1.0, 0.0]] * 4)), hidden.bias.copy_(-kinks)
            out.weight.copy_(size * torch.tensor([[-1.0, 2.0, -2.0, 1.0], [0.0] * 4])), out.bias.zero_()
        critic.network = torch.nn.Sequential(hidden, torch.nn.ReLU(), out)
        assert critic.network(x).abs().max() < 1e-10 * size
        losses = torch.stack([critic._loss(x, -x, rng).detach() for _ in range(2_000)])
        assert abs(losses.mean() + size / n) < 4 * losses.std() / math.sqrt(2_000)
    assert r"with at least four ReLU units in each hidden layer it has none *at any* $n$" in PROSE
    assert "As the component of $c$ of that coordinate it makes the loss $-t/n$." in PROSE


@pytest.mark.parametrize(("nu", "falls"), [(0.1, False), (0.25, True)])
def test_a_pair_across_the_ridge_needs_a_distance_above_an_eighth(nu, falls):
    banana, pairs = Banana(scale=1.0, bend=1.0, width=0.5), []
    for a in (10.0, 50.0):
        pair = torch.tensor([[a, a**2 - 1 - nu], [a, a**2 - 1 + nu]], dtype=torch.float64)
        pairs.append(float(ksd_u_statistic(pair, score(banana, pair), RBF(1.0))))
    assert (pairs[1] < 10 * pairs[0] < 0) if falls else (pairs[1] > 10 * pairs[0] > 0)
    said = r"For a fixed $\nu > \sigma^2/(2\beta\varsigma^2)$, here 0.125, this goes to $-\infty$ as $a\to\infty$."
    assert said in PROSE


def test_particles_on_a_line_of_symmetry_stay_on_it_under_svgd_and_gfsf():
    corners = torch.cartesian_prod(*2 * [torch.tensor([-2.0, 2.0], dtype=torch.float64)])
    x = torch.randn(10, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[:, 0] = 0
    for direction in (SVGD(), GFSF()):
        phi = direction(x, score(GaussianMixture(corners, 0.3**0.5), x))[0]
        assert phi[:, 0].abs().max() < 1e-12 < phi[:, 1].abs().max()
    assert "SVGD and GFSF would keep particles on it as well" in PROSE


def test_one_batch_is_a_common_shift():
    assert round(at("kernel-saturation", 1, "kernel on all of z", 10_000), 3) == 0.998
    assert "makes up 99.8 % of the mean square of one batch's" in PROSE


def test_the_kernel_of_the_mnist_network_differs_by_a_percent():
    all_of_z, of_256 = (100 * math.log(10) * math.sqrt(2 / d) for d in (61_366, 256))
    assert sum(weight.numel() for weight in lenet5(6).parameters()) == 61_366
    said = r"For LeNet-5 with six outputs ($d = 61{,}366$) and $n = 10$, the kernel's values would differ by about"
    assert rf"{said} $\log(10)\sqrt{{2/61{{,}}366}} \approx {all_of_z:.1f}\,\%$." in PROSE
    assert f"(If the kernel sees only Table 9's 256 noises: {of_256:.0f} %.)" in PROSE


def test_svgd_seems_to_stop_on_the_banana():
    found = printed("nb07-25")
    assert "seemed to stop: Σ error 0.4" in found and "1,500 more steps: Σ error 0.2" in found
    assert found.count("SVGD's below 0.01, GFSF's above 2 (its ridge explains less than 0.05)") == 2
    errors = {row.split("|")[2].strip(): row.split("|")[3].strip() for row in printed("nb07-23").splitlines()[2:7]}
    assert float(errors["SVGD"]) > 3 * float(errors["GFSF"])
    assert errors["Stein critic"] == "0.5" and "with a Σ error of 0.5" in PROSE
    assert "At step 600 SVGD's Σ error on the banana is several times GFSF's." in PROSE
    assert "on the banana SVGD seems to stop with a Σ error of 0.4, and 1,500 more steps bring 0.2." in PROSE


@pytest.mark.slow
def test_on_the_banana_svgds_error_falls_after_step_600_and_stays_after_1500_more_steps():
    banana, rng = Banana(scale=1.0, bend=1.0, width=0.5), torch.Generator().manual_seed(0)
    start = torch.tensor([0.0, 1.5]) + 0.5 * torch.randn(100, 2, generator=rng, dtype=torch.float64)

    def error_and_end(x, steps, final_lr):
        particles, adam = Particles(x.clone()), Adam(lr=0.05, final_lr=final_lr)
        fit(particles, banana, ParVI(SVGD()), steps=steps, optimizer=adam, rng=rng, progress=False)
        x = particles.x.detach()
        return relative_error(torch.cov(x.mT), banana.covariance), x

    early, x = error_and_end(start, 600, 1e-3)
    late, later = (error_and_end(x, steps, 1e-4)[0] for steps in (1_500, 3_000))
    assert early > late + 0.1 > late + 0.05 > later > late - 0.05
    assert "So SVGD had not arrived, nor had it after 1,500 more steps." in PROSE


def test_the_critics_loss_falls_with_fewer_particles_than_dimensions():
    assert "after 200 and after 400 steps" in printed("nb07-12")
    assert "d = 100: below -0.3, and then lower by more than 0.5" in printed("nb07-12")
    assert "At $d = 100 > n$, where even a linear critic's has no lower bound, the loss was still falling" in PROSE


def test_the_printed_cosines_are_those_of_the_summary():
    assert "d =  10000: mean cosine of one batch: kernel on z 0.11, on z_1, z_2 0.96" in printed("nb07-31")
    assert re.search(r"over g's weight matrix: 0.00 and 0.04$", printed("nb07-31").strip())
    assert "over g's weight matrix: " in CELLS["nb07-31"].source
    assert "over its whole weight matrix 0.00 and 0.04" in PROSE
    found = [float(on_head) for on_head in re.findall(r"over g's weight matrix: \S+ and (\S+)", printed("nb07-31"))]
    assert len(found) == 3 and found[0] > 5 * found[1] > 10 * found[2]
    said = "The cosine over $g$'s whole weight matrix does: 0.04 at $d = 10{,}000$ (kernel on $z$: 0.00)."
    assert said in PROSE


@pytest.mark.parametrize(("space", "trains"), [("z", True), ("head", False)])
def test_a_kernel_on_the_head_gives_a_trained_lambda_no_gradient_beyond_k(space, trains):
    rng = torch.Generator().manual_seed(0)
    target = Gaussian(torch.zeros(20, dtype=torch.float64), 4 * torch.eye(20, dtype=torch.float64))
    generator = Generator(20, 2, noise_scale=torch.ones(20, dtype=torch.float64), train_noise_scale=True, rng=rng,
                          dtype=torch.float64)  # fmt: skip
    objective, found = GPVI(100, kernel_space=space), []
    for _ in range(100):
        loss, _ = objective(generator, target, None, rng)
        found.append(float(torch.autograd.grad(loss, generator.log_noise_scale)[0][2:].mean()))
    error = np.std(found) / math.sqrt(len(found))
    assert (abs(np.mean(found)) > 20 * error) if trains else (abs(np.mean(found)) < 4 * error)
    assert "It gives $\\lambda_{k:}$ none" in PROSE


def test_on_small_networks_svgds_particles_end_closer_than_the_members_of_an_ensemble():
    for c in test_14.FIGURES:
        particles, members = (test_14.relative(c, name) for name in ("svgd", "deep_ensemble"))
        assert particles.max() < 0.08 and members.min() > 0.7
        later = [test_14.longer(c, name, "sd_far") / test_14.posterior(c) for name in ("svgd", "deep_ensemble")]
        assert later[0] < 0.08 < 0.4 < later[1]
        for record in (test_14.FIGURES[c].record("svgd"), test_14.longest(c, "svgd")):
            assert record.config["sampler"] == {"kind": "particles", "num": 100}
    said = "On small networks a hundred SVGD particles end nearly as one, closer than an ensemble's members"
    assert said in PROSE


def test_amortised_critics_do_worse_in_13_and_15():
    errors = [Runs("bayesian-linear-regression").metric(name, "sigma_error").mean() for name in CRITICS]
    assert errors[0] < errors[1]
    rates = [Runs("bayesian-linear-regression").record(name).config["lr"] for name in CRITICS]
    assert rates[0] == rates[1]
    for digits in ("open-category-mnist", "open-category-mnist-clean"):
        right = [Runs(digits).record(name).metrics["accuracy_percent"] for name in CRITICS]
        assert right[0] > 3 * right[1]
        rates = [Runs(digits).record(name).config["lr"] for name in CRITICS]
        assert rates[0] > 10 * rates[1]
    said = "they do worse than critics on particles in [13](13-bayesian-linear-regression.ipynb), and in"
    assert f"{said} [15](15-open-category-mnist.ipynb) at another rate." in PROSE


def test_what_the_critic_of_mnist_has_right():
    record = Runs("open-category-mnist-clean").record("ksd")
    clean = record.metrics["accuracy_percent"]
    assert record.config["known_classes"] == list(range(10))
    said_of = ("gpvi/table3/mnist", "ksd", "clean_accuracy_percent")
    (paper,) = [p.mean for p in scoreboard.published() if (p.item, p.method, p.metric) == said_of]
    said = f"(accuracy on ten digits: printed {paper:.1f} %, ours {clean:.1f} % after 3 of 100 epochs, 15)"
    assert said in "".join(code("07"))
