"""The tests of Wild VI can fail: each of four likely mistakes in the library is caught by the test that is for it."""

import inspect
import sys
import textwrap

import pytest
import test_langevin
import test_wild

from gpvi_lib import KernelSteinDiscrepancy, LangevinNetwork, RegressedParVI


@pytest.fixture
def break_method(monkeypatch):
    """Replaces a method by the same one with one expression changed."""

    def change(owner, name, right, wrong):
        source = textwrap.dedent(inspect.getsource(getattr(owner, name)))
        assert source.count(right) == 1
        code = compile(source.replace(right, wrong), "<mutation>", "exec")
        names = dict(vars(sys.modules[owner.__module__]))
        exec(code, names)
        monkeypatch.setattr(owner, name, names[name])

    return change


def test_noise_of_half_the_variance_is_noticed(break_method, normal):
    break_method(LangevinNetwork, "_layer", "(2 * step).sqrt()", "step.sqrt()")
    with pytest.raises(AssertionError):
        test_langevin.test_a_layer_is_equation_18(normal)


def test_a_detached_score_at_the_output_is_noticed(break_method, normal):
    right = "differentiable_score(target, x, batch), None"
    break_method(KernelSteinDiscrepancy, "__call__", right, "score_on_support(target, x, batch), None")
    with pytest.raises(AssertionError):
        test_langevin.test_the_discrepancys_gradient_passes_through_chain_and_score(normal, independent=False)


def test_fresh_noise_within_a_regression_is_noticed(break_method):
    again = "torch.Generator(rng.device).set_state(self._inputs)"
    break_method(RegressedParVI, "__call__", again, "rng")
    with pytest.raises(AssertionError):
        test_wild.test_all_inner_steps_have_the_same_inputs_and_the_next_regression_has_others()


def test_a_reversed_kernel_on_another_minibatch_is_noticed(break_method, normal):
    other = "self._score(z, None if batch is None else batch.flip(0).roll(1) % 3)"
    break_method(LangevinNetwork, "rsample_with_path_ratio", "after = self._score(z, batch)", f"after = {other}")
    with pytest.raises(AssertionError):
        test_langevin.test_the_path_ratio_is_that_of_its_kernels(normal, 4)
