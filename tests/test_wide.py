"""The large output layer: the same numbers as `torch.nn.functional.linear`, and memory that is used again."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.testing import assert_close

from gpvi_lib import GPVI, RBF, BlockInverse, Gaussian, Generator, NegativeELBO, fit
from gpvi_lib import wide as of_wide
from gpvi_lib.fitting import Training
from gpvi_lib.optimizers import Adam
from gpvi_lib.wide import WideLinear

NEEDS_ONEDNN = pytest.mark.skipif(not of_wide.HAS_ONEDNN, reason="this build of torch has no oneDNN")
ONEDNN = pytest.param(True, marks=NEEDS_ONEDNN, id="onednn")


def wide(a, weight, number=0, spare=()):
    return WideLinear.apply(a, weight, list(spare), number)


@pytest.mark.parametrize("number", [0, 4])
def test_it_is_a_linear_layer_and_rows_of_its_weights_with_both_derivatives(normal, number):
    a, weight = normal(5, 7).requires_grad_(), normal(30, 7).requires_grad_()
    assert_close(wide(a, weight, number), (F.linear(a, weight), weight[:number]))
    assert torch.autograd.gradcheck(lambda a, w: wide(a, w, number), (a, weight))
    assert torch.autograd.gradgradcheck(lambda a, w: wide(a, w, number), (a, weight))


def test_it_can_be_vectorised_and_differentiated_by_torch_func(normal):
    a, weight = normal(5, 7), normal(30, 7)
    jacobians, of_rows = torch.vmap(torch.func.jacrev(lambda row: wide(row[None], weight, 2)))(a)
    assert_close(jacobians[:, 0, :, :], weight.expand(5, 30, 7))
    assert_close(of_rows, torch.zeros(5, 2, 7, 7, dtype=a.dtype))


def test_the_gradient_goes_into_the_spare_tensor(normal):
    a, weight, spare = normal(5, 7), normal(30, 7).requires_grad_(), [normal(30, 7)]
    address = spare[0].data_ptr()
    out, rows = WideLinear.apply(a, weight, spare, 2)
    (out.square().sum() + 3 * rows.sum()).backward()
    assert weight.grad.data_ptr() == address and spare == []
    of_rows = F.pad(torch.full_like(a[:2], 3), (0, 0, 0, 28))
    assert_close(weight.grad, 2 * (a @ weight.detach().mT).mT @ a + of_rows)


def test_rows_alone_have_a_gradient(normal):
    """A loss that uses the determinant and not the samples."""
    a, weight = normal(5, 7), normal(30, 7).requires_grad_()
    wide(a, weight, 2)[1].sum().backward()
    assert_close(weight.grad, F.pad(torch.ones_like(a[:2]), (0, 0, 0, 28)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_it_has_a_forward_mode(normal, dtype):
    a, weight = normal(4, 3).to(dtype), normal(7, 3).to(dtype)
    both = (normal(4, 3).to(dtype), normal(7, 3).to(dtype))
    expected = torch.func.jvp(F.linear, (a, weight), both)[1]
    assert_close(torch.func.jvp(lambda a, w: wide(a, w, 2), (a, weight), both)[1], (expected, both[1][:2]))
    assert_close(torch.func.jacfwd(lambda row: wide(row[None], weight)[0][0])(a[0]), weight)
    with forward_ad.dual_level():
        dual = wide(forward_ad.make_dual(a, both[0]), forward_ad.make_dual(weight, both[1]))[0]
        assert_close(forward_ad.unpack_dual(dual).tangent, expected)


@NEEDS_ONEDNN
@pytest.mark.parametrize("samples", [1, 2, 10, 33])
@pytest.mark.parametrize("transposed", [False, True])
def test_onednn_multiplies_as_float64_does(rng, samples, transposed, monkeypatch):
    """More rows than two blocks, gradients of either layout, and the sum that a loss of samples and rows has."""
    called, number = [], 3
    monkeypatch.setattr(of_wide, "USE_ONEDNN", True)
    onednn = torch.ops.mkldnn._linear_pointwise
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", lambda *args: called.append(0) or onednn(*args))
    a, weight = torch.randn(samples, 64, generator=rng), torch.randn(2_100, 64, generator=rng)
    factor, of_rows = torch.randn(2_100, samples, generator=rng), torch.randn(number, 64, generator=rng)
    factor = factor.mT if transposed else factor.mT.contiguous()

    def gradients(a, weight, spare):
        a, weight = a.requires_grad_(), weight.requires_grad_()
        out, rows = WideLinear.apply(a, weight, spare, number)
        loss = (out * factor.to(a.dtype)).sum() + (rows * of_rows.to(a.dtype)).sum()
        return out.detach(), *torch.autograd.grad(loss, (a, weight))

    expected = [value.float() for value in gradients(a.double(), weight.double(), [])]
    assert not called
    for spare in ([], [torch.full_like(weight, torch.nan)]):
        for ours, exact in zip(gradients(a.clone(), weight.clone(), spare), expected, strict=True):
            assert_close(ours, exact, rtol=1e-4, atol=1e-4 * float(exact.abs().max()))
    assert len(called) == 2 * (2 if samples == 1 else 5)


def test_what_onednn_cannot_do_is_done_without_it(normal, monkeypatch):
    """Second derivatives and maps over a batch, in single precision."""
    monkeypatch.setattr(of_wide, "USE_ONEDNN", of_wide.HAS_ONEDNN)
    a, weight = normal(5, 7).float(), normal(30, 7).float()
    jacobians = torch.vmap(torch.func.jacrev(lambda row: wide(row[None], weight)[0][0]))(a)
    assert_close(jacobians, weight.expand(5, 30, 7))
    hessian = torch.func.hessian(lambda w: wide(a, w)[0].square().sum())(weight)
    assert_close(hessian[0, :, 0], 2 * a.mT @ a)


@pytest.mark.parametrize(("vendor", "expected"), [("GenuineIntel", True), ("AuthenticAMD", False)])
def test_the_maker_of_the_processor_decides(tmp_path, vendor, expected):
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nvendor_id\t: {vendor}\n")
    assert of_wide._is_intels(tmp_path / "cpuinfo") == expected


@pytest.mark.parametrize(("processor", "expected"), [("Intel64 Family 6, GenuineIntel", True), ("arm", False)])
def test_without_a_file_of_processors_the_platform_says_who_made_it(tmp_path, processor, expected, monkeypatch):
    """As on Windows and on a Mac."""
    monkeypatch.setattr(of_wide.platform, "processor", lambda: processor)
    assert of_wide._is_intels(tmp_path / "cpuinfo") == expected


@pytest.fixture(params=[pytest.param(False, id="torch"), ONEDNN])
def small_is_wide(request, monkeypatch):
    monkeypatch.setattr(of_wide, "WIDE", 1)
    monkeypatch.setattr(of_wide, "USE_ONEDNN", request.param)


@pytest.mark.parametrize("small_is_wide", [ONEDNN], indirect=True)
def test_the_exact_inverse_pulls_back_the_same(rng, small_is_wide, monkeypatch):
    """By oneDNN: torch's product is one and the same for wide layers and for others."""
    called, onednn = [], of_wide.by_onednn
    monkeypatch.setattr(of_wide, "by_onednn", lambda *factors: called.append(0) or onednn(*factors))
    generator = Generator(6, 2, (5,), noise_scale=0.5, rng=rng)
    source, query = generator.noise(4, rng), generator.noise(3, rng)
    with torch.no_grad():
        arguments = (generator.linearize(source), source, query, RBF()(source, query)[1], generator(query), rng)
        found = BlockInverse().add_and_pull_back(*(x.clone() if torch.is_tensor(x) else x for x in arguments))[:2]
        assert called
        monkeypatch.setattr(of_wide, "WIDE", 10**9)
        called.clear()
        expected = BlockInverse().add_and_pull_back(*(x.clone() if torch.is_tensor(x) else x for x in arguments))[:2]
    assert not called
    assert_close(found, expected)


def training(rng, objective=None) -> Training:
    target = Gaussian(torch.arange(6.0), torch.eye(6))
    generator = Generator(6, 2, (5,), noise_scale=0.5, activation="tanh", rng=rng)
    return Training(generator, target, objective or GPVI(8), rng=rng, optimizer=Adam(lr=1e-2))


@pytest.mark.parametrize("objective", [GPVI(8), NegativeELBO(8)])
def test_training_is_the_same_with_it(rng, small_is_wide, monkeypatch, objective):
    state = rng.get_state()
    wide = training(rng, objective)
    losses = [float(wide.advance()) for _ in range(20)]
    monkeypatch.setattr(of_wide, "WIDE", 10**9)
    rng.set_state(state)
    plain = training(rng, objective)
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
