"""Batched LU on the CPU: right with several threads, and never called batched for large matrices."""

import subprocess
import sys

import pytest
import torch
from torch.testing import assert_close

from gpvi_lib import linalg
from gpvi_lib.paths import repository

# With the batched call of torch this hangs or raises, so it runs in a process of its own, under a time limit.
TRAP = """
import torch
from gpvi_lib import linalg

torch.set_num_threads(2)
rng = torch.Generator().manual_seed(0)
for k in (100, 256):
    for dtype in (torch.float32, torch.float64):
        # A Gaussian matrix / (2 sqrt k) has eigenvalues within 1/2 of 0, so those of a are within 1/2 of 1.
        a = torch.eye(k) + torch.randn(10, k, k, generator=rng) / (2 * k**0.5)
        a = a.to(dtype).requires_grad_()
        b = torch.randn(10, k, 3, generator=rng).to(dtype)
        # A residual of Gaussian elimination is a few eps times the growth of k sums.
        tolerance = k * torch.finfo(dtype).eps
        x = linalg.solve(a, b)
        assert (a @ x - b).norm() < tolerance * b.norm(), (k, dtype)
        x = linalg.solve(a, b.mT, left=False)
        assert (x @ a - b.mT).norm() < tolerance * b.norm(), (k, dtype)
        sign, logabsdet = linalg.slogdet(a)
        (gradient,) = torch.autograd.grad(logabsdet.sum(), a)
        # ∂ log|det a| / ∂a = a⁻ᵀ
        identity = torch.eye(k, dtype=dtype).expand(10, k, k)
        assert (gradient.mT @ a - identity).norm() < tolerance * identity.norm(), (k, dtype)
        expected = torch.stack([torch.linalg.det(ai.double()) for ai in a])
        assert torch.allclose(linalg.det(a).double(), expected, rtol=10 * tolerance), (k, dtype)
        assert torch.allclose(sign * logabsdet.exp(), expected.to(dtype), rtol=10 * tolerance), (k, dtype)
print("fine")
"""


def test_large_batches_are_right_on_two_threads():
    done = subprocess.run([sys.executable, "-c", TRAP], capture_output=True, text=True, timeout=120, cwd=repository())
    assert (done.stdout.strip(), done.returncode) == ("fine", 0), done.stderr


@pytest.mark.parametrize(("k", "axes"), [(64, 3), (65, 2), (100, 2), (256, 2)])
def test_large_matrices_are_factorised_one_by_one(monkeypatch, k, axes):
    seen = []

    def solve(a, b, left):
        seen.append(a.ndim)
        return torch.zeros_like(b)

    def slogdet(a):
        seen.append(a.ndim)
        return a.new_zeros(a.shape[:-2]), a.new_zeros(a.shape[:-2])

    monkeypatch.setattr(torch.linalg, "solve", solve)
    monkeypatch.setattr(torch.linalg, "slogdet", slogdet)
    a = torch.eye(k).expand(4, k, k)
    assert linalg.solve(a, torch.ones(4, k, 2)).shape == (4, k, 2)
    assert [part.shape for part in linalg.slogdet(a)] == [(4,), (4,)]
    assert set(seen) == {axes}


@pytest.mark.parametrize("threshold", [2, 64])
def test_the_loop_and_the_batched_call_agree(monkeypatch, normal, threshold):
    monkeypatch.setattr(linalg, "LARGEST_BATCHED_CPU_LU", threshold)
    a, b = normal(5, 4, 4), normal(5, 4, 2)
    assert_close(linalg.solve(a, b), torch.stack([torch.linalg.inv(ai) @ bi for ai, bi in zip(a, b, strict=True)]))
    rows = linalg.solve(a, b.mT, left=False)
    assert_close(rows, torch.stack([bi.mT @ torch.linalg.inv(ai) for ai, bi in zip(a, b, strict=True)]))
    sign, logabsdet = linalg.slogdet(a)
    assert_close(sign * logabsdet.exp(), torch.linalg.det(a))


@pytest.mark.parametrize("k", [3, 70])
def test_a_singular_matrix_is_an_error(k):
    with pytest.raises(torch.linalg.LinAlgError):
        linalg.solve(torch.zeros(2, k, k), torch.ones(2, k, 1))


@pytest.mark.parametrize("k", [1, 20, 33, 47, 64, 70])
@pytest.mark.parametrize("transposed", [False, True])
def test_inverses_by_halves_are_inverses(normal, k, transposed):
    a = normal(5, k, k) / (2 * k**0.5) + torch.eye(k, dtype=torch.float64).flip(0)  # needs pivots
    a = a.mT if transposed else a
    identity = torch.eye(k, dtype=torch.float64).expand(5, k, k)
    # eigenvalues of a aᵀ above 1/100: a condition number of some tens
    assert_close(linalg.inverse(a) @ a, identity, rtol=0, atol=1e-11)


@pytest.mark.parametrize("k", [3, 40, 70])
def test_a_singular_matrix_has_no_inverse(k):
    with pytest.raises(torch.linalg.LinAlgError):
        linalg.inverse(torch.zeros(2, k, k))
