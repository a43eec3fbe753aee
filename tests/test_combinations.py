"""Parts of the library in combinations that once gave torch's raw errors, or none where one was due."""

import copy
import pickle

import pytest
import torch
from torch.distributions import MultivariateNormal
from torch.testing import assert_close

from gpvi_lib import (
    AVB,
    KDE,
    KIVI,
    SVGD,
    Adam,
    AdaptiveLangevin,
    CategoricalLikelihood,
    Flow,
    Gaussian,
    Generator,
    GPVIError,
    Jitter,
    LangevinNetwork,
    LogisticPosterior,
    MeanField,
    NegativeELBO,
    NormalLikelihood,
    NormalPrior,
    OverProblems,
    Particles,
    ParVI,
    PathELBO,
    Posterior,
    ProblemFamily,
    StreamedPosterior,
    Uniform,
    curvature,
    extras,
    fit,
    last_layer_laplace,
    load_sampler,
    mlp,
    save_sampler,
)
from gpvi_lib.laplace_full import kronecker_laplace, low_rank_laplace
from gpvi_lib.optimizers import Optimizer
from gpvi_lib.targets import BayesianLinearRegression, MLPClassificationPosterior

F64 = torch.float64


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def labelled(n: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(n, 2, generator=seeded(1)), torch.arange(n) % 3


def once_differentiable() -> MLPClassificationPosterior:
    return MLPClassificationPosterior((2, 4, 3), *labelled())


def classifier() -> Posterior:
    return Posterior(mlp([2, 4, 3], "tanh"), CategoricalLikelihood(), *labelled(), NormalPrior(1.0))


def standard(dim: int = 2, dtype: torch.dtype = F64) -> Gaussian:
    return Gaussian(torch.zeros(dim, dtype=dtype), torch.eye(dim, dtype=dtype))


# Second derivatives


def test_a_curvature_needs_second_derivatives():
    streamed = StreamedPosterior(
        mlp([2, 4, 3], "tanh"), CategoricalLikelihood(), torch.utils.data.TensorDataset(*labelled())
    )
    for target in (once_differentiable(), streamed):
        with pytest.raises(ValueError, match=f"{type(target).__name__} can be differentiated only once"):
            curvature(target, torch.zeros(target.dim))


def test_a_curvature_is_that_of_the_whole_posterior():
    """Of a score of the target's own too."""
    target = LogisticPosterior(*(part.double() for part in (labelled()[0], labelled()[1] % 2)))
    at = torch.tensor([0.3, -0.2, 0.1], dtype=F64)
    hessian = torch.autograd.functional.hessian(lambda z: -target.log_prob(z[None])[0], at)
    assert_close(curvature(target, at), 1 / hessian.diagonal())


def test_eigenvalues_of_a_hessian_need_second_derivatives():
    target = once_differentiable()
    with pytest.raises(ValueError, match="MLPClassificationPosterior can be differentiated only once"):
        low_rank_laplace(target, torch.zeros(target.dim), rank=2)


@pytest.mark.parametrize("laplace", [last_layer_laplace, kronecker_laplace, low_rank_laplace])
def test_a_mode_is_one_particle(laplace):
    target = classifier()
    particles = Particles(0.1 * torch.randn(1, target.dim, generator=seeded()))
    with pytest.raises(ValueError, match=rf"mode must have shape \({target.dim},\), got \(1, {target.dim}\).*x\[0\]"):
        laplace(target, particles.x)
    with torch.no_grad():
        assert laplace(target, particles.x[0]).sample(2, seeded()).shape == (2, target.dim)


# Copies of a flow


def test_a_flow_that_was_trained_can_be_copied_and_pickled():
    flow = Flow(2, 3, seed=0)
    copies = []
    fit(
        flow, standard(dtype=torch.float32), NegativeELBO(4), steps=2, optimizer=Adam(0.01), seed=0, progress=False,
        callback=lambda step, q: copies.append(copy.deepcopy(q)), callback_every=1,
    )  # fmt: skip
    flow.rsample(3, seeded()).sum().backward()
    copies.append(pickle.loads(pickle.dumps(flow)))
    for same in (copies[-2], copies[-1], copy.deepcopy(flow)):
        assert torch.equal(same.sample(3, seeded()), flow.sample(3, seeded()))
    x, _ = LangevinNetwork(flow, standard(dtype=torch.float32), 2).rsample_with_path_ratio(3, seeded())
    assert x.shape == (3, 2)


# Priors that objectives draw from


@pytest.mark.parametrize("objective", [AVB, KIVI])
def test_a_prior_that_samples_in_another_way_is_refused(objective):
    x, y = labelled()
    regression = Posterior(
        torch.nn.Linear(2, 1), NormalLikelihood(1.0), x, x[:, 0], MultivariateNormal(torch.zeros(3), torch.eye(3))
    )
    for target, name in ((regression, "MultivariateNormal"), (LogisticPosterior(x, y % 2), "LogisticPrior")):
        with pytest.raises(ValueError, match=rf"{objective.__name__} .* {name} has no sample\(n, like, rng\): take a"):
            objective(2)(MeanField(torch.zeros(3)), target, None, seeded())


# Packages


def test_a_package_that_is_broken_is_not_called_missing(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_a.py").write_text("import a_module_that_nobody_has\n")
    (tmp_path / "broken_b.py").write_text("from torch import a_name_that_torch_lacks\n")
    (tmp_path / "hollow").mkdir()
    (tmp_path / "hollow" / "__init__.py").write_text("")
    for module, reason in (
        ("broken_a", "No module named 'a_module_that_nobody_has'"),
        ("broken_b", "cannot import name 'a_name_that_torch_lacks'"),
        ("hollow.part", "No module named 'hollow.part'"),
    ):
        package = module.split(".")[0]
        with pytest.raises(GPVIError, match=f"{package} is installed but cannot be imported: {reason}") as refused:
            extras.optional(module)
        assert isinstance(refused.value.__cause__, ImportError)
    with pytest.raises(GPVIError, match=r"absent_c is not installed; get it with: .*\[paper\]"):
        extras.optional("absent_c.part")


# Precision of a chain


@pytest.mark.parametrize("make", [LangevinNetwork, lambda *a: AdaptiveLangevin("adagrad", *a, 0.1)])
def test_a_chain_has_the_precision_of_its_start(make):
    for dtype in (torch.float32, F64):
        chain = make(MeanField(torch.zeros(2, dtype=dtype)), standard(dtype=dtype), 2)
        assert chain.rho.dtype == dtype and chain.sample(3, seeded()).dtype == dtype
    with pytest.raises(ValueError, match=r"Regression computes in torch.float64 .* draws torch.float32: give .*dtype="):
        make(MeanField(torch.zeros(2)), wide_regression(), 2).sample(3, seeded())


def wide_regression(n: int = 6) -> BayesianLinearRegression:
    rng = seeded(n)
    return BayesianLinearRegression(torch.randn(n, 2, generator=rng, dtype=F64), torch.ones(n, dtype=F64))


def test_a_chain_in_double_precision_is_trained():
    chain = LangevinNetwork(MeanField(torch.zeros(2, dtype=F64)), wide_regression(), 2, step_size=0.01)
    before = chain.rho.detach().clone()
    fit(chain, wide_regression(), PathELBO(4), steps=2, optimizer=Adam(0.1), seed=0, progress=False)
    assert chain.rho.dtype == F64 and not torch.equal(chain.rho, before)
    single = LangevinNetwork(MeanField(torch.zeros(2)), wide_regression(), 2, step_size=0.01)
    with pytest.raises(ValueError, match="give the sampler dtype=torch.float64"):
        fit(single, wide_regression(), PathELBO(4), steps=2, optimizer=Adam(0.1), seed=0, progress=False)


# Layers that are computed again


@pytest.mark.parametrize("batch_size", [None, 3])
def test_a_path_whose_layers_are_computed_again_has_the_same_gradient(batch_size):
    found, kept = [], []
    for again in (False, True):
        start, sizes = MeanField(torch.ones(2, dtype=F64)), []
        net = LangevinNetwork(
            start, wide_regression(), 6, step_size=0.02, batch_size=batch_size, recompute=again, dtype=F64
        )
        with torch.autograd.graph.saved_tensors_hooks(lambda t, to=sizes: to.append(t.numel()) or t, lambda t: t):
            loss, _ = PathELBO(50)(net, net.target, None, seeded())
        found.append((loss.detach(), *torch.autograd.grad(loss, net.rho)))
        kept.append(sum(sizes))
    assert_close(found[1], found[0], rtol=1e-12, atol=0)
    assert kept[1] < 0.5 * kept[0]


# Rates


def test_a_rate_of_a_noise_scale_that_is_not_trained_is_refused():
    frozen = Generator(2, seed=0, train_noise_scale=True)
    frozen.log_noise_scale.requires_grad_(False)
    chain = LangevinNetwork(Generator(2, seed=0, train_noise_scale=True), standard(dtype=torch.float32), 2)
    for sampler in (frozen, chain):
        with pytest.raises(ValueError, match=f"needs a trained λ, and {type(sampler).__name__} has none"):
            Adam(0.1, noise_scale_lr=0.2).make(sampler)
    groups = Adam(0.1, noise_scale_lr=0.2).make(frozen.requires_grad_()).param_groups
    assert [group["lr"] for group in groups] == [0.1, 0.2]


@pytest.mark.parametrize("name", ["final_lr", "noise_scale_lr", "weight_decay"])
def test_a_rate_in_words_is_refused(name):
    with pytest.raises(GPVIError, match=f"{name} must be 0 or a positive finite number, got '1e-3'"):
        Adam(1e-2, **{name: "1e-3"})


class Rprop(Optimizer):
    algorithm = torch.optim.Rprop


class AdamW(Optimizer):
    algorithm = torch.optim.AdamW


def test_an_algorithm_without_weight_decay_can_be_used():
    sampler = MeanField(torch.zeros(2))
    fit(sampler, standard(dtype=torch.float32), NegativeELBO(4), steps=2, optimizer=Rprop(0.01), seed=0, progress=False)
    with pytest.raises(GPVIError, match=r"Rprop has no weight_decay, got 0\.1: leave it out"):
        Rprop(0.01, weight_decay=0.1).make(sampler)
    assert AdamW(0.01).make(sampler).defaults["weight_decay"] == 0  # not torch's 0.01


# Freezes on disk


def test_a_freeze_is_saved(tmp_path):
    half = Generator(3, 2, (4,), train_noise_scale=True, seed=0)
    half.log_noise_scale.requires_grad_(False)
    whole = MeanField(torch.zeros(3)).requires_grad_(False)
    chain = LangevinNetwork(MeanField(torch.zeros(3)), standard(3, torch.float32), 2)
    for sampler in (half, whole, chain, Generator(3, seed=0)):
        loaded = load_sampler(save_sampler(sampler, tmp_path / "sampler.safetensors"))
        trained, again = ({n: p.requires_grad for n, p in one.named_parameters()} for one in (sampler, loaded))
        assert again == trained
    with pytest.raises(ValueError, match=r"no parameter with requires_grad=True.*requires_grad_\(\) undoes a freeze"):
        loaded = load_sampler(save_sampler(whole, tmp_path / "sampler.safetensors"))
        fit(loaded, standard(3, torch.float32), NegativeELBO(4), steps=1, optimizer=Adam(0.1), seed=0, progress=False)


# Further points


@pytest.mark.parametrize("points", [Jitter(3), KDE(3), Uniform(3, 0.0, 4.0)], ids=lambda points: type(points).__name__)
def test_whole_numbers_have_no_points_between_them(points):
    with pytest.raises(ValueError, match=r"inputs are torch.int64: give a tensor of further inputs, or points=None"):
        points(torch.arange(8).reshape(4, 2), seeded())


# Families of problems of several sizes


def test_layers_draw_rows_of_problems_that_differ_in_number():
    family = ProblemFamily([wide_regression(n) for n in (5, 9, 12)])
    net, seen = LangevinNetwork(MeanField(torch.zeros(2, dtype=F64)), family, 3, step_size=0.01, batch_size=4), set()
    fit(net, family, OverProblems(ParVI(SVGD(), 4)), steps=3, optimizer=Adam(0.1), seed=0, progress=False)
    for problem in family.problems:
        rows = torch.cat([net.on(problem).inputs(1, seeded(seed)).batches.flatten() for seed in range(40)])
        seen.add(int(rows.max()) + 1)
    assert seen == {5, 9, 12}
    with pytest.raises(ValueError, match="batch_size = 6 rows a layer cannot be drawn of ProblemFamily"):
        LangevinNetwork(MeanField(torch.zeros(2, dtype=F64)), family, 3, batch_size=6)
    without = ProblemFamily([wide_regression(), standard()])
    with pytest.raises(ValueError, match="num_data = None"):
        LangevinNetwork(MeanField(torch.zeros(2, dtype=F64)), without, 3, batch_size=2)
