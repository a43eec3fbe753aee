"""What notebook 02 says of its records: folds in the plane, smooth units, λ."""

import math

import numpy as np
import pytest
import torch
from of_records import history, runs, values

from gpvi_lib import Banana
from gpvi_lib.experiments import injectivity_plane

TARGETS = ("banana", "banana_turned", "modes")
KINDS = ("exact_density", "gpvi", "lipschitz", "no_head")
UNITS = {"relu", "tanh", "softplus", "silu", "gelu", "elu"}
LAMBDAS = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


def plane(target, kind, key):
    """One metric of all starts in the plane."""
    return values("injectivity-plane", f"{target}_{kind}", key)


def everywhere(key, kinds=KINDS):
    return np.concatenate([plane(target, kind, key) for target in TARGETS for kind in kinds])


def folded(target, kind):
    return plane(target, kind, "overclaim") > 1e-6


def test_no_true_elbo_is_above_the_evidence():
    assert (everywhere("elbo") < 0.02).all()  # the targets are normalised; 0.02 for Monte Carlo


def test_five_of_120_runs_claim_more_than_the_evidence_those_on_the_exact_density_that_folded():
    claimed = everywhere("elbo_claimed")
    assert len(claimed) == 120 and (claimed > 0.02).sum() == 5
    assert sum(folded(target, "exact_density").sum() for target in TARGETS) == 5
    assert folded("banana_turned", "exact_density").sum() == 4


def test_their_true_elbo_is_the_worst_of_their_group():
    true, worst = plane("banana_turned", "exact_density", "elbo"), folded("banana_turned", "exact_density")
    assert true[worst].max() < true[~worst].min()


def test_three_runs_by_the_functional_gradient_fold():
    assert sum(folded(target, "gpvi").sum() for target in TARGETS) == 3


def test_the_run_in_the_picture_claims_no_more_than_the_logarithm_of_its_preimages():
    shown = max(runs("injectivity-plane", "banana_turned_exact_density"), key=lambda run: run.metrics["overclaim"])
    generator = injectivity_plane.recorded_generator(shown.config, shown.arrays())
    points = Banana(1.0, 1.0, 0.3).sample(20_000, torch.Generator().manual_seed(0), dtype=torch.float64).flip(-1)
    preimages = (injectivity_plane.preimage_log_terms(generator, points) > -math.inf).double().sum(-1)
    assert shown.metrics["elbo_claimed"] < math.log(preimages.mean()) + 0.05


@pytest.mark.parametrize("kind", ["lipschitz", "no_head"])
def test_no_run_with_a_guarantee_overclaims(kind):
    assert np.abs(everywhere("elbo_claimed", [kind]) - everywhere("elbo", [kind])).max() < 1e-6


def test_on_the_ring_tanh_claims_what_is_true_and_is_nearer_than_relu_on_every_seed():
    tanh, relu = (values("activations", f"ring_{unit}", "kl") for unit in ("tanh", "relu"))
    assert tanh.max() < 0.03 < relu.min()
    assert np.abs(tanh - values("activations", "ring_tanh", "kl_claimed")).max() < 0.01


def test_with_the_kernel_on_z_relu_and_softplus_train_and_the_other_units_end_at_chance():
    accuracy = {unit: values("activations", f"functional_{unit}", "accuracy_percent") for unit in UNITS}
    assert {unit for unit in UNITS if accuracy[unit].min() > 98} == {"relu", "softplus"}
    assert {unit for unit in UNITS if accuracy[unit].max() < 20} == UNITS - {"relu", "softplus"}


# Four classes, over λ


def of(method, key):
    return values("injectivity", method, key)


def at(objective, scale, key):
    """One metric of an objective at a fixed λ."""
    return of(f"{objective}_lambda_{scale:g}".replace(".", "_"), key)


def best(objective):
    """Largest mean ELBO over the fixed λ."""
    return max(at(objective, scale, "elbo").mean() for scale in LAMBDAS)


def test_with_a_trained_scale_the_functional_gradient_folds_on_the_way_and_the_exact_density_does_not():
    for method, folds_on_the_way in (("gpvi_trained", True), ("gpvi_exact_density", False)):
        assert (history("injectivity", method, "negative_share") > 0).any(1).tolist() == [folds_on_the_way] * 3


@pytest.mark.parametrize("scale", [scale for scale in LAMBDAS if scale <= 0.5])
def test_from_one_half_down_accuracy_is_perfect(scale):
    assert (at("gpvi", scale, "accuracy_percent") > 98).all()


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_from_one_up_networks_classify_hardly_better_than_chance(scale):
    assert at("gpvi", scale, "accuracy_percent").mean() < 45


def test_training_the_scale_beats_every_fixed_one_clearly_with_the_exact_density_barely_with_the_functional_gradient():
    assert best("exact_density") + 10 < of("gpvi_exact_density", "elbo").mean()
    assert best("gpvi") < of("gpvi_trained", "elbo").mean() < best("gpvi") + 20


def test_the_trained_scale_ends_near_seven_tenths():
    assert abs(of("gpvi_exact_density", "lambda_mean").mean() - 0.7) < 0.05
