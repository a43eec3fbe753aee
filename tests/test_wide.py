"""The large output layer: the same numbers as `torch.nn.functional.linear`, and memory that is used again."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from gpvi_lib import GPVI, Gaussian, Generator, fit, samplers
from gpvi_lib.fitting import Training
from gpvi_lib.optimizers import Adam
from gpvi_lib.wide import WideLinear


def test_it_is_a_linear_layer_with_both_derivatives(normal):
    a, weight = normal(5, 7).requires_grad_(), normal(30, 7).requires_grad_()
    assert_close(WideLinear.apply(a, weight, []), F.linear(a, weight))
    assert torch.autograd.gradcheck(lambda a, w: WideLinear.apply(a, w, []), (a, weight))
    assert torch.autograd.gradgradcheck(lambda a, w: WideLinear.apply(a, w, []), (a, weight))


def test_it_can_be_vectorised_and_differentiated_by_torch_func(normal):
    a, weight = normal(5, 7), normal(30, 7)
    jacobians = torch.vmap(torch.func.jacrev(lambda row: WideLinear.apply(row[None], weight, [])[0]))(a)
    assert_close(jacobians, weight.expand(5, 30, 7))


def test_the_gradient_goes_into_the_spare_tensor(normal):
    a, weight, spare = normal(5, 7), normal(30, 7).requires_grad_(), [normal(30, 7)]
    address = spare[0].data_ptr()
    WideLinear.apply(a, weight, spare).square().sum().backward()
    assert weight.grad.data_ptr() == address and spare == []
    assert_close(weight.grad, 2 * (a @ weight.detach().mT).mT @ a)


def test_it_has_a_forward_mode(normal):
    a, weight = normal(4, 3), normal(7, 3)
    both = (normal(4, 3), normal(7, 3))
    expected = torch.func.jvp(F.linear, (a, weight), both)[1]
    assert_close(torch.func.jvp(lambda a, w: WideLinear.apply(a, w, []), (a, weight), both)[1], expected)
    assert_close(torch.func.jacfwd(lambda row: WideLinear.apply(row[None], weight, [])[0])(a[0]), weight)


@pytest.fixture
def small_is_wide(monkeypatch):
    monkeypatch.setattr(samplers, "WIDE", 1)


def training(rng) -> Training:
    target = Gaussian(torch.arange(6.0), torch.eye(6))
    generator = Generator(6, 2, (5,), noise_scale=0.5, rng=rng)
    return Training(generator, target, GPVI(8), rng=rng, optimizer=Adam(lr=1e-2))


def test_training_is_the_same_with_it(rng, small_is_wide, monkeypatch):
    state = rng.get_state()
    wide = training(rng)
    losses = [float(wide.advance()) for _ in range(20)]
    monkeypatch.setattr(samplers, "WIDE", 10**9)
    rng.set_state(state)
    plain = training(rng)
    assert losses == pytest.approx([float(plain.advance()) for _ in range(20)], rel=1e-4)


def test_training_uses_the_memory_of_the_last_gradient(rng, small_is_wide):
    run = training(rng)
    run.advance()
    gradient = run.sampler.output.weight.grad
    address, before = gradient.data_ptr(), gradient.clone()
    del gradient  # a gradient that someone else holds is copied, as autograd does with every such tensor
    run.advance()
    assert run.sampler.output.weight.grad.data_ptr() == address
    assert not torch.equal(run.sampler.output.weight.grad, before)


def test_a_wide_generator_resumes_to_the_same_result(rng, small_is_wide, tmp_path):
    def run(steps, checkpoint=None):
        made = training(torch.Generator().manual_seed(3))
        arguments = {"optimizer": Adam(1e-2), "rng": made.rng, "checkpoint": checkpoint, "checkpoint_seconds": 0}
        fit(made.sampler, made.target, made.objective, steps=steps, progress=False, **arguments)
        return made.sampler.state_dict()

    run(4, tmp_path / "run.pt")
    for name, value in run(9, tmp_path / "run.pt").items():
        assert torch.equal(value, run(9)[name])
