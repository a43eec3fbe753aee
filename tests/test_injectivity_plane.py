"""Preimages in the plane, claimed and true densities, and the projection onto injective maps."""

import math

import pytest
import torch
from torch.testing import assert_close

from gpvi_lib.experiments import get_experiment, injectivity_plane
from gpvi_lib.experiments.heads import head_lipschitz_bound
from gpvi_lib.lab.experiment import RunContext
from gpvi_lib.samplers import Generator
from gpvi_lib.targets import Banana

F64 = torch.float64


def folding(rng, stretch=8.0, hidden=(12,), noise_scale=0.2):
    f = Generator(2, 1, hidden, noise_scale=noise_scale, activation="relu", rng=rng, dtype=F64)
    with torch.no_grad():
        f.output.weight.mul_(stretch)
    return f


def absolute_value(rng):
    """The head 1 - |u|: two pieces, two preimages of every x_1 < 1."""
    f = Generator(2, 1, (2,), noise_scale=0.5, activation="relu", rng=rng, dtype=F64)
    with torch.no_grad():
        f.hidden[0].weight.copy_(torch.tensor([[1.0], [-1.0]]))
        f.hidden[0].bias.zero_()
        f.output.weight.copy_(torch.tensor([[-1.5, -0.5], [0.0, 0.0]]))  # + 0.5 u: slopes -1 and +1
        f.output.bias.copy_(torch.tensor([1.0, 0.0]))
    return f


def test_the_pieces_are_the_head(rng):
    f = folding(rng)
    left, right, slopes, intercepts = injectivity_plane.head_pieces(f)
    u = torch.linspace(-3, 3, 500, dtype=F64)
    piece = ((u[:, None] >= left) & (u[:, None] < right)).double()
    assert_close(piece.sum(-1), torch.ones(500, dtype=F64))
    head = f(torch.stack([u, torch.zeros_like(u)], -1))[:, 0].detach()
    assert_close((piece * (slopes * u[:, None] + intercepts)).sum(-1), head)


def test_the_density_of_a_folded_normal_is_known(rng):
    """x_1 = 1 - |u| has density 2 N(1 - x_1) below 1 and none above; x_2 = t / 2 is independent."""
    f = absolute_value(rng)
    x = torch.tensor([[0.3, 0.1], [-1.0, -0.7], [1.2, 0.0]], dtype=F64)
    found = injectivity_plane.preimage_log_terms(f, x).logsumexp(-1)
    normal = torch.distributions.Normal(0.0, 1.0)
    expected = math.log(2) + normal.log_prob(1 - x[:2, 0]) + torch.distributions.Normal(0.0, 0.5).log_prob(x[:2, 1])
    assert_close(found[:2], expected)
    assert found[2] == -math.inf


def test_a_two_sheeted_map_overclaims_log_two(rng):
    found = injectivity_plane.claimed_and_true(absolute_value(rng), Banana(), 2_000)
    assert found["overclaim"] == pytest.approx(math.log(2))
    assert found["elbo_claimed"] - found["elbo"] == pytest.approx(math.log(2))
    assert found["preimages"] == 2
    assert abs(found["negative_share"] - 0.5) < 5 * 0.5 / 2_000**0.5


def test_the_noise_at_hand_is_among_the_preimages(rng):
    f = folding(rng)
    z = f.noise(500, rng)
    x = f(z).detach()
    own = -0.5 * z.square().sum(-1) - math.log(2 * math.pi) - f.linearize(z).slogdet()[1].detach()
    assert float((injectivity_plane.preimage_log_terms(f, x) - own[:, None]).abs().amin(-1).max()) < 1e-8


def test_the_summed_density_integrates_to_one_and_a_single_term_to_less(rng):
    f = absolute_value(rng)
    grid = torch.linspace(-7, 3, 401, dtype=F64)
    terms = injectivity_plane.preimage_log_terms(f, torch.cartesian_prod(grid, grid))
    cell = float(grid[1] - grid[0]) ** 2
    # half a cell on either side of the edge at x_1 = 1, where the density jumps from 0.8
    assert float(terms.logsumexp(-1).exp().sum() * cell) == pytest.approx(1, abs=0.015)
    assert float(terms.amax(-1).exp().sum() * cell) == pytest.approx(0.5, abs=0.0075)


def test_units_that_are_all_but_dead_do_no_harm(rng):
    f = folding(rng)
    with torch.no_grad():
        f.hidden[0].weight[0] = 1e-20
    found = injectivity_plane.claimed_and_true(f, Banana(), 500)
    assert math.isfinite(found["elbo"])
    assert found["elbo_claimed"] - found["elbo"] > -1e-9


@pytest.mark.parametrize("bad", [{"hidden": ()}, {"hidden": (3, 3)}])
def test_other_generators_are_refused(bad, rng):
    with pytest.raises(ValueError, match="one hidden ReLU layer"):
        injectivity_plane.head_pieces(Generator(2, 1, **bad, activation="relu", rng=rng, dtype=F64))


def test_a_projected_head_is_injective_and_projecting_twice_changes_nothing(rng):
    f = folding(rng)
    assert injectivity_plane.claimed_and_true(f, Banana(), 200)["negative_share"] > 0
    tail = f.output.weight[1:].detach().clone()
    injectivity_plane.project_head(f)
    assert head_lipschitz_bound(f) <= 0.9 * 0.2 * (1 + 1e-12)
    assert_close(f.output.weight[1:].detach(), tail)
    assert bool((injectivity_plane.head_pieces(f)[2] > 0).all())
    head = f.output.weight.detach().clone()
    injectivity_plane.project_head(f)
    assert_close(f.output.weight.detach(), head)


def test_turned_targets_swap_coordinates():
    x = torch.tensor([[0.4, -1.0]])
    assert_close(injectivity_plane.Turned(Banana()).log_prob(x), Banana().log_prob(x.flip(-1)))


def test_methods_name_target_and_kind():
    experiment = get_experiment("injectivity-plane")
    config = experiment.config("banana_turned_no_head", "paper")
    assert (config["target"], config["kind"]) == ("banana_turned", "no_head")
    assert experiment.config("banana_gpvi", "smoke")["objective"]["kind"] == "gpvi"


@pytest.mark.parametrize("kind", injectivity_plane.KINDS)
def test_a_record_holds_its_generator(kind):
    method = f"modes_{kind}"
    config = injectivity_plane.config(method, "smoke")
    outcome = injectivity_plane.run(config, method, RunContext(torch.device("cpu"), 0, None, method, progress=False))
    f = injectivity_plane.recorded_generator(config, outcome.arrays)
    target = injectivity_plane.TARGETS["modes"](torch.device("cpu"))
    found = injectivity_plane.claimed_and_true(f, target, config["evaluation_points"])
    assert found["elbo"] == pytest.approx(outcome.metrics["elbo"])
    if kind == "lipschitz":
        assert outcome.metrics["lipschitz_bound"] <= 0.9 * outcome.metrics["lambda_1"] * (1 + 1e-9)
    if kind == "no_head":
        assert outcome.metrics["lipschitz_bound"] == 0
