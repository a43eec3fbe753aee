"""Langevin networks: gradients against finite differences, the exact law of fixed schedules, and what is refused."""

import math

import pytest
import torch
from torch.distributions import constraints
from torch.testing import assert_close

import gpvi_lib
from gpvi_lib import (
    Banana,
    BayesianLinearRegression,
    Constrained,
    Gaussian,
    GaussianMixture,
    Generator,
    KernelSteinDiscrepancy,
    LangevinNetwork,
    LineGrid,
    LogisticPrior,
    MeanField,
    Particles,
    PathELBO,
    SemiImplicitELBO,
    gaussian_chain,
    load_sampler,
    save_sampler,
    share_outside,
)
from gpvi_lib.metrics import ksd_u_statistic
from gpvi_lib.targets import MLPClassificationPosterior
from gpvi_lib.targets.base import differentiable_score

F64 = torch.float64


def normal_start(dim=2, at=0.5) -> MeanField:
    return MeanField(torch.full((dim,), at, dtype=F64), 1.0)


def network(target, layers=4, **settings) -> LangevinNetwork:
    """Different step sizes in every layer and coordinate, so that no two can be confused."""
    steps = torch.linspace(0.02, 0.2, layers * target.dim, dtype=F64).reshape(layers, target.dim)
    return LangevinNetwork(normal_start(target.dim), target, layers, **{"step_size": steps, "dtype": F64} | settings)


def regression(normal) -> BayesianLinearRegression:
    return BayesianLinearRegression(normal(12, 2), normal(12))


def seeded(seed=3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def value_of(net, rho, loss) -> float:
    with torch.no_grad():
        net.rho.copy_(rho)
    return float(loss(net).detach())


def finite_differences(net, loss, t=1e-4) -> torch.Tensor:
    """Central differences in every parameter: off by t^2 = 1e-8 times third derivatives, and 1e-16 / t = 1e-12."""
    rho, found = net.rho.detach().clone(), torch.zeros_like(net.rho)
    for place in torch.cartesian_prod(*map(torch.arange, rho.shape)).tolist():
        step = torch.zeros_like(rho)
        step[tuple(place)] = t
        far = [value_of(net, rho + sign * step, loss) for sign in (1, -1, 2, -2)]
        found[tuple(place)] = (8 * (far[0] - far[1]) - (far[2] - far[3])) / (12 * t)  # of fourth order
    with torch.no_grad():
        net.rho.copy_(rho)
    return found


def gradient(net, loss) -> torch.Tensor:
    return torch.autograd.grad(loss(net), net.rho)[0]


def cubic(net):
    return net.rsample(7, seeded()).pow(3).mean() + net.rsample(7, seeded()).prod(-1).mean()


# The chain


@pytest.mark.parametrize("ceiling", [None, 1.5, torch.tensor([0.5, 3.0], dtype=F64)])
def test_the_gradient_is_that_of_the_chain(ceiling):
    net = network(Banana(1.0, 0.7, 0.8), 3, ceiling=ceiling)
    assert_close(net.step_size.detach(), torch.linspace(0.02, 0.2, 6, dtype=F64).reshape(3, 2))
    assert_close(gradient(net, cubic), finite_differences(net, cubic), rtol=1e-6, atol=1e-7)


def test_one_step_size_for_all_coordinates():
    steps = torch.tensor([[0.03], [0.1], [0.2]], dtype=F64)
    one, each = (network(Banana(), 3, step_size=steps, per_coordinate=per) for per in (False, True))
    assert one.step_size.shape == (3, 1) and torch.equal(one.sample(4, seeded()), each.sample(4, seeded()))
    assert_close(gradient(one, cubic), gradient(each, cubic).sum(1, keepdim=True))


def test_the_gradient_is_the_adjoint_recursion_by_hand():
    """``∂L/∂log η = Σ a ⊙ (η ⊙ s + √(η/2) ⊙ ξ)``, then ``a ← a + H (η ⊙ a)``, on a Gaussian with H = -Λ."""
    precision = torch.tensor([[2.0, 0.6], [0.6, 1.0]], dtype=F64)
    target = Gaussian(torch.zeros(2, dtype=F64), torch.linalg.inv(precision))
    net = network(target, 5)
    inputs = net.inputs(6, seeded())
    states = list(net._states(inputs))
    a, expected = 3 * states[-1].detach().square(), torch.zeros_like(net.rho)
    for layer in reversed(range(5)):
        z, step = states[layer].detach(), net.step_size[layer].detach()
        expected[layer] = (a * (-step * (z @ precision) + (step / 2).sqrt() * inputs.noise[layer])).sum(0)
        a = a - (step * a) @ precision
    assert_close(torch.autograd.grad(states[-1].pow(3).sum(), net.rho)[0], expected)


def test_a_layer_is_equation_18(normal):
    target = regression(normal)
    net = network(target, 3, batch_size=4)
    inputs = net.inputs(5, seeded())
    assert inputs.batches.shape == (3, 4) and len(set(inputs.batches.flatten().tolist())) > 4
    z = inputs.start
    for layer, step in enumerate(net.step_size.detach()):
        rows = inputs.batches[layer]
        slope = 12 / 4 * (target.targets[rows] - z @ target.inputs[rows].mT) @ target.inputs[rows]
        z = z + step * slope + (2 * step).sqrt() * inputs.noise[layer]
    assert_close(net(inputs).detach(), z)


def test_without_noise_the_layers_climb_the_density(normal):
    target = regression(normal)
    net = network(target, 3, noise=False)
    inputs = net.inputs(5, seeded())
    z = inputs.start
    for step in net.step_size.detach():
        z = z + step * ((target.targets - z @ target.inputs.mT) @ target.inputs)
    assert_close(net(inputs).detach(), z)


@pytest.mark.parametrize("batch_size", [None, 3])
def test_minibatches_are_differentiated_too(normal, batch_size):
    net = network(regression(normal), 3, batch_size=batch_size, step_size=0.03)
    assert_close(gradient(net, cubic), finite_differences(net, cubic), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("truncate", [True, False])
def test_recomputed_layers_give_the_same_gradient(truncate):
    nets = [network(Banana(), 4, recompute=again, truncate=truncate) for again in (False, True)]
    assert_close(*(net.rsample(5, seeded()) for net in nets), rtol=1e-12, atol=0)
    assert_close(*(gradient(net, cubic) for net in nets), rtol=1e-12, atol=0)


def test_truncation_leaves_the_hessian_out():
    """Then only the last layer's gradient is right, and the chain itself is the same."""
    full, cut = (network(Banana(), 3, truncate=truncate) for truncate in (False, True))
    assert torch.equal(full.sample(4, seeded()), cut.sample(4, seeded()))
    differs = (gradient(full, cubic) - gradient(cut, cubic)).abs().amax(1)
    assert differs[-1] == 0 and (differs[:-1] > 1e-3).all()


def test_sampling_leaves_no_graph_and_draws_what_rsample_draws():
    net = network(Banana())
    drawn, again = net.sample(5, seeded()), net.rsample(5, seeded())
    assert not drawn.requires_grad and again.requires_grad
    assert_close(drawn, again.detach(), rtol=1e-12, atol=1e-12)
    path = net.path(5, seeded())
    assert path.shape == (5, 5, 2) and torch.equal(path[-1].detach(), again.detach())
    with torch.no_grad():
        assert net.path(5, seeded()).grad_fn is None


def test_another_target_shares_the_step_sizes():
    net = network(Banana())
    moved = net.on(Gaussian(torch.ones(2, dtype=F64), torch.eye(2, dtype=F64)))
    assert moved.rho is net.rho and not torch.equal(moved.sample(4, seeded()), net.sample(4, seeded()))
    assert isinstance(net.target, Banana)
    gradient(moved, cubic)
    with torch.no_grad():
        net.rho.add_(0.3)
    assert torch.equal(moved.step_size, net.step_size)


def test_only_step_sizes_are_trained():
    net = network(Banana())
    assert [name for name, p in net.named_parameters() if p.requires_grad] == ["rho"]
    start = normal_start()
    LangevinNetwork(start, Banana(), 2)
    assert start.mean.requires_grad  # the caller's own is as it was


def test_a_target_that_is_a_module_is_not_trained_along():
    class Mine(torch.nn.Module):
        dim, num_data = 2, None

        def __init__(self):
            super().__init__()
            self.precision = torch.nn.Parameter(torch.ones((), dtype=F64))

        def log_prob(self, x):
            return -0.5 * self.precision * x.square().sum(-1)

    assert "precision" not in " ".join(name for name, _ in network(Mine()).named_parameters())


# The exact law


@pytest.mark.parametrize(
    ("low", "high", "cells"), [(1.0, 1.0, 10), (2.0, 1.0, 10), (-1.0, math.nan, 10), (0.0, 1.0, 1), (0.0, 1.0, -5)]
)
def test_a_grid_without_cells_is_refused(low, high, cells):
    with pytest.raises(ValueError, match=f"a grid needs low < high and 2 cells, got {low}, {high} and {cells}"):
        LineGrid(low, high, cells)


def test_grid_recursion_and_chains_agree_on_a_gaussian():
    """Four standard errors of 10^6 chains: 4e-3 of a mean, 6e-3 of a variance."""
    precision, steps = torch.tensor([[1.7]], dtype=F64), torch.tensor([[0.9], [0.3], [0.05]], dtype=F64)
    target = Gaussian(torch.tensor([1.0], dtype=F64), 1 / precision)
    start = MeanField(torch.tensor([-4.0], dtype=F64), 1.2)
    mean, variance = gaussian_chain(start.mean.detach(), torch.eye(1, dtype=F64) * 1.44, target.mean, precision, steps)
    grid = LineGrid(-15, 15, 1_000)
    masses = grid.push(grid.normal(start.mean.detach(), 1.2)[0], target, steps[:, 0])
    assert float(masses.sum()) == pytest.approx(1, abs=1e-9)
    on_grid = float(masses @ grid.centres)
    assert on_grid == pytest.approx(float(mean), abs=1e-9)
    assert float(masses @ (grid.centres - on_grid).square()) == pytest.approx(float(variance), abs=1e-8)
    z = LangevinNetwork(start, target, 3, step_size=steps, dtype=F64).sample(10**6, seeded())
    error = math.sqrt(float(variance) / len(z))
    assert float(z.mean()) == pytest.approx(float(mean), abs=4 * error)
    assert float(z.var()) == pytest.approx(float(variance), rel=4 * math.sqrt(2 / len(z)))


def test_the_recursion_is_the_law_of_chains_in_the_plane(normal):
    a = normal(2, 2)
    precision = a @ a.mT + torch.eye(2, dtype=F64)
    target = Gaussian(normal(2), torch.linalg.inv(precision))
    net = network(target, 4)
    identity = torch.eye(2, dtype=F64)
    mean, covariance = gaussian_chain(
        normal_start().mean.detach(), identity, target.mean, precision, net.step_size.detach()
    )
    z = net.sample(200_000, seeded())
    errors = (z.mean(0) - mean).abs() / (covariance.diagonal() / len(z)).sqrt()
    assert (errors < 4).all()
    spread = covariance.diagonal()
    sd = ((torch.outer(spread, spread) + covariance.square()) / len(z)).sqrt()
    assert ((z.mT.cov() - covariance).abs() / sd < 4).all()


def test_steps_narrower_than_a_cell_keep_their_mass():
    grid, target = LineGrid(-8, 8, 160), GaussianMixture(torch.zeros(1, 1, dtype=F64))
    masses = grid.normal(torch.zeros(1, dtype=F64), 1.0)[0]
    pushed = grid.push(masses, target, torch.full((3,), 1e-6, dtype=F64))
    assert float(pushed.sum()) == pytest.approx(1, abs=1e-12)
    assert grid.divergence(pushed, target.log_prob(grid.centres[:, None])) < 1e-3


def test_mass_that_leaves_the_grid_is_missing():
    grid, target = LineGrid(-3, 3, 300), GaussianMixture(torch.zeros(1, 1, dtype=F64))
    masses = grid.normal(torch.tensor([2.0], dtype=F64), 1.0)[0]
    assert float(masses.sum()) == pytest.approx(0.8413, abs=1e-3)  # Φ(1)
    assert float(grid.push(masses, target, torch.tensor([0.5], dtype=F64)).sum()) < 0.84


def test_the_divergence_of_two_normals():
    grid = LineGrid(-20, 20, 2_000)
    p = Gaussian(torch.zeros(1, dtype=F64), torch.eye(1, dtype=F64))
    masses = grid.normal(torch.tensor([1.0], dtype=F64), 2.0)[0]
    expected = -math.log(2) + 0.5 * (4 + 1) - 0.5
    assert grid.divergence(masses, p.log_prob(grid.centres[:, None])) == pytest.approx(expected, abs=1e-6)
    assert grid.masses(p.log_prob(grid.centres[:, None])).sum() == pytest.approx(1)


# The path


def path_ratio(net, states, inputs) -> torch.Tensor:
    """``log q_0 + Σ log F - log B`` from the two kernels' densities themselves."""
    total = torch.distributions.Normal(net.start.mean, net.start.scale).log_prob(states[0]).sum(-1)
    for layer, step in enumerate(net.step_size):
        rows = None if inputs.batches is None else inputs.batches[layer]
        here, there = states[layer], states[layer + 1]
        slope = [gpvi_lib.score(net.target, z, rows) for z in (here, there)]
        sd = (2 * step).sqrt()
        total = total + torch.distributions.Normal(here + step * slope[0], sd).log_prob(there).sum(-1)
        total = total - torch.distributions.Normal(there + step * slope[1], sd).log_prob(here).sum(-1)
    return total


@pytest.mark.parametrize("batch_size", [None, 4])
def test_the_path_ratio_is_that_of_its_kernels(normal, batch_size):
    net = network(regression(normal), 3, batch_size=batch_size, step_size=0.05)
    x, ratio = net.rsample_with_path_ratio(6, seeded())
    inputs = net.inputs(6, seeded())
    states = [z.detach() for z in net._states(inputs)]
    assert torch.equal(x.detach(), states[-1])
    assert_close(ratio.detach(), path_ratio(net, states, inputs).detach())


@pytest.mark.parametrize("objective", [PathELBO(6), SemiImplicitELBO(6)], ids=["path", "semi-implicit"])
@pytest.mark.parametrize("batch_size", [None, 4])
def test_the_gradient_of_the_elbos_of_a_chain(normal, batch_size, objective):
    net = network(regression(normal), 3, batch_size=batch_size, step_size=0.04)

    def loss(net):
        return objective(net, net.target, None, seeded())[0]

    assert_close(gradient(net, loss), finite_differences(net, loss), rtol=1e-6, atol=1e-6)


def test_the_path_elbo_is_above_the_divergence():
    target = GaussianMixture(torch.tensor([[-2.0], [2.0]], dtype=F64), 1.0, torch.tensor([1 / 3, 2 / 3], dtype=F64))
    start, grid = normal_start(1), LineGrid(-12, 12, 800)
    for step in (1e-4, 0.1, 0.8):
        net = LangevinNetwork(start, target, 5, step_size=step, dtype=F64)
        with torch.no_grad():
            x, ratio = net.rsample_with_path_ratio(20_000, seeded())
        values = ratio - target.log_prob(x)
        masses = grid.push(grid.normal(start.mean.detach(), 1.0)[0], target, net.step_size.detach()[:, 0])
        exact = grid.divergence(masses, target.log_prob(grid.centres[:, None]))
        assert float(values.mean()) > exact - 4 * float(values.std()) / math.sqrt(len(x))
        if step == 1e-4:  # hardly a step: the path is its start
            assert float(values.mean()) == pytest.approx(exact, abs=0.1)


def test_the_last_layer_is_a_normal():
    net = network(Banana(), 3)
    x, mean, variance = net.last_layer(5, seeded())
    inputs = net.inputs(5, seeded())
    *_, before, last = net._states(inputs)
    step = net.step_size[-1]
    assert_close(x, last)
    assert_close(mean, before + step * gpvi_lib.score(net.target, before))
    assert_close(variance, 2 * step)


# Files


@pytest.mark.parametrize("ceiling", [None, 1.5, torch.tensor([0.5, 3.0], dtype=F64)])
@pytest.mark.parametrize("start", [normal_start(), LogisticPrior(1, dtype=F64)], ids=["normal", "prior"])
def test_a_file_brings_a_trained_network_back(tmp_path, ceiling, start):
    target = Gaussian(torch.zeros(2, dtype=F64), torch.eye(2, dtype=F64))
    net = LangevinNetwork(start, target, 3, step_size=0.1, ceiling=ceiling, truncate=True, dtype=F64)
    with torch.no_grad():
        net.rho.add_(torch.linspace(-1, 1, 6).reshape(3, 2))
    back = load_sampler(save_sampler(net, tmp_path / "net.safetensors"))
    with pytest.raises(ValueError, match="no target: use network.on"):
        back.sample(4, seeded())
    assert torch.equal(back.on(target).sample(4, seeded()), net.sample(4, seeded()))
    assert back.truncate and torch.equal(back.step_size, net.step_size)


def test_a_start_that_cannot_be_saved_is_named(tmp_path):
    class Mine(MeanField):
        pass

    net = LangevinNetwork(Mine(torch.zeros(2)), Banana(), 3)
    with pytest.raises(gpvi_lib.UnknownName, match="kind of sampler 'Mine'"):
        save_sampler(net, tmp_path / "net.safetensors")


# What is refused


@pytest.mark.parametrize("step", [0.0, -0.1, math.nan, math.inf, torch.tensor([[0.1, 0.0]])])
def test_step_sizes_must_be_positive(step):
    with pytest.raises(ValueError, match="step_size η must be positive and finite"):
        LangevinNetwork(normal_start(), Banana(), 3, step_size=step)


def test_what_cannot_be_is_refused(normal):
    start = normal_start()
    with pytest.raises(ValueError, match="layers must be a whole number >= 1, got 0"):
        LangevinNetwork(start, Banana(), 0)
    with pytest.raises(ValueError, match=r"must start below its ceiling, got 0.5.* and 0.2"):
        LangevinNetwork(start, Banana(), 3, step_size=0.5, ceiling=0.2)
    with pytest.raises(ValueError, match=r"must broadcast to \(3, 2\), got shape \(4, 2\)"):
        LangevinNetwork(start, Banana(), 3, step_size=torch.ones(4, 2))
    with pytest.raises(ValueError, match=r"R\^3 and Banana on R\^2"):
        LangevinNetwork(normal_start(3), Banana(), 3)
    with pytest.raises(ValueError, match=r"R\^2 and Gaussian on R\^3"):
        network(Banana()).on(Gaussian(torch.zeros(3), torch.eye(3)))
    with pytest.raises(ValueError, match="batch_size = 5 .* Banana, which has num_data = None"):
        LangevinNetwork(start, Banana(), 3, batch_size=5)
    with pytest.raises(ValueError, match="batch_size = 50 .* num_data = 12"):
        LangevinNetwork(start, regression(normal), 3, batch_size=50)
    with pytest.raises(ValueError, match="draws any number of points"):
        network(Banana()).rsample(None, seeded())


@pytest.mark.parametrize("settings", [{"noise": False}, {"truncate": True}])
def test_a_path_needs_noise_and_all_gradients(settings):
    with pytest.raises(ValueError, match="noise=True and truncate=False"):
        network(Banana(), **settings).rsample_with_path_ratio(3, seeded())


def once_differentiable() -> MLPClassificationPosterior:
    return MLPClassificationPosterior((2, 3, 2), torch.randn(5, 2, generator=seeded()), torch.tensor([0, 1, 0, 1, 1]))


def test_targets_that_are_differentiable_once_are_refused():
    """Differentiating such a score gives no error of PyTorch's, but a gradient without it."""
    target = once_differentiable()
    start = MeanField(torch.zeros(target.dim))
    with pytest.raises(ValueError, match="MLPClassificationPosterior can be differentiated only once"):
        LangevinNetwork(start, target, 3, step_size=0.01).rsample(2, seeded())
    with pytest.raises(ValueError, match="MLPClassificationPosterior can be differentiated only once"):
        KernelSteinDiscrepancy()(Particles(torch.randn(4, target.dim, generator=seeded())), target, None, seeded())
    cut = LangevinNetwork(start, target, 3, step_size=0.01, truncate=True)
    assert gradient(cut, cubic).isfinite().all() and cut.sample(2, seeded()).isfinite().all()


def test_one_target_that_can_be_differentiated_twice_does_not_vouch_for_another_of_its_class():
    inside = once_differentiable()
    points = Particles(torch.randn(4, inside.dim, generator=seeded()))
    parts = {"w": (constraints.real, (inside.dim,))}
    good, bad = Constrained(lambda p: -p["w"].square().sum(-1), parts), Constrained(inside, parts)
    KernelSteinDiscrepancy()(points, good, None, seeded())
    with pytest.raises(ValueError, match="can be differentiated only once"):
        KernelSteinDiscrepancy()(points, bad, None, seeded())


def test_a_score_of_the_targets_own_that_is_a_constant_is_refused():
    class Mine:
        dim, num_data = 2, None

        def log_prob(self, x, batch=None):
            return -0.5 * x.square().sum(-1)

        def score(self, x, batch=None):
            return -x.detach()

    with pytest.raises(ValueError, match=r"Mine\.score must be differentiable"):
        network(Mine()).rsample(2, seeded())


def test_chains_that_left_are_counted():
    z = torch.tensor([[0.0, 1.0], [0.0, -11.0], [math.nan, 0.0], [math.inf, 0.0]])
    assert share_outside(z, 10.0) == 0.75
    net = LangevinNetwork(
        normal_start(1), Gaussian(torch.zeros(1, dtype=F64), torch.eye(1, dtype=F64)), 60, step_size=40.0
    )
    assert share_outside(net.sample(50, seeded()), 100.0) == 1.0  # and nothing is raised


# Independent batches of the kernel Stein discrepancy


def test_two_batches_keep_the_discrepancy_unbiased(normal):
    """One batch for both arguments adds the variance of the score; the mean over batches shows it."""
    target = BayesianLinearRegression(normal(60, 2), normal(60))
    x = Particles(0.3 * normal(20, 2))
    full = ksd_u_statistic(x.x.detach(), gpvi_lib.score(target, x.x), gpvi_lib.RBF(1.0))
    rng = seeded()
    found = {}
    for independent in (False, True):
        objective = KernelSteinDiscrepancy(gpvi_lib.RBF(1.0), independent_batches=independent)
        values = [objective(x, target, torch.randint(60, (6,), generator=rng), rng)[0].detach() for _ in range(800)]
        values = torch.stack(values)
        found[independent] = (values.mean() - full) / (values.std() / math.sqrt(len(values)))
    assert abs(found[True]) < 3 and found[False] > 5


def test_two_batches_need_a_batch():
    with pytest.raises(ValueError, match="give `fit` a batch_size"):
        KernelSteinDiscrepancy(independent_batches=True)(Particles(torch.randn(4, 2)), Banana(), None, seeded())


@pytest.mark.parametrize("independent", [False, True])
def test_the_discrepancys_gradient_passes_through_chain_and_score(normal, independent):
    target = regression(normal) if independent else Banana()
    net = network(target, 3, step_size=0.04)
    objective = KernelSteinDiscrepancy(gpvi_lib.RBF(2.0), 6, independent_batches=independent)

    def loss(net):
        return objective(net, net.target, torch.arange(4) if independent else None, seeded())[0]

    assert_close(gradient(net, loss), finite_differences(net, loss), rtol=1e-6, atol=1e-6)


def test_a_generator_is_still_differentiated_as_before(rng):
    """The score that KSD differentiates is the same automatic derivative as ever."""
    generator = Generator(2, 2, (6,), rng=rng, dtype=F64)
    x = generator.rsample(4, seeded())
    (expected,) = torch.autograd.grad(Banana().log_prob(x).sum(), x, create_graph=True)
    assert torch.equal(gpvi_lib.targets.differentiable_score(Banana(), x), expected)


class Learned(torch.nn.Module):
    """A density with a parameter of the user's."""

    dim, num_data = 2, None

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.ones(2))

    def log_prob(self, x, batch=None):
        return -(self.a * x.square()).sum(-1)


@pytest.mark.parametrize("before", [None, torch.full((2,), 3.0)])
def test_looking_at_a_target_leaves_gradients_of_the_users_parameters_alone(before):
    target = Learned()
    target.a.grad = None if before is None else before.clone()
    LangevinNetwork(MeanField(torch.zeros(2)), target, 2, step_size=0.01).rsample(3, seeded())
    assert target.a.grad is None if before is None else torch.equal(target.a.grad, before)


class OwnScore:
    """A density without a graph, whose score is written out."""

    dim, num_data = 2, None

    def log_prob(self, x, batch=None):
        return -0.5 * x.detach().square().sum(-1)

    def score(self, x, batch=None):
        return -x


def test_a_score_of_ones_own_is_all_that_is_differentiated():
    x = torch.ones(3, 2, requires_grad=True)
    differentiable_score(OwnScore(), x).sum().backward()
    assert torch.equal(x.grad, -torch.ones(3, 2))
