"""The reference of LIVI's toy: the posterior over functions by long chains, the output layer integrated out."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from gpvi_lib.experiments.chains import diagnostics, run_hmc
from gpvi_lib.experiments.evaluation import Functions, evenly, reference_arrays
from gpvi_lib.experiments.livi_problem import (
    FRESH,
    HIDDEN,
    NOISE,
    REGIONS,
    data,
    evaluated,
    fresh_log_likelihood,
    functions,
    posterior,
)
from gpvi_lib.experiments.output_layer import HiddenLayerPosterior
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext, one_seed
from gpvi_lib.targets import RegressionPosterior


class LastLayerIntegrated(HiddenLayerPosterior):
    """The posterior over the two hidden layers, in units of the prior, with the output layer integrated out."""

    def __init__(self, target: RegressionPosterior) -> None:
        self.target, last = target, HIDDEN[-1] + 1
        self.dim = target.dim - last
        scale = target.prior.scale
        assert isinstance(scale, Tensor), "one scale per weight"
        self.inner_scale, self.outer_scale = scale.split([self.dim, last])

    def _features(self, u: Float[Tensor, "n e"]) -> Float[Tensor, "n N f"]:
        a, b = HIDDEN
        first, bias, second, offset = (u * self.inner_scale).split([a, a, a * b, b], dim=-1)
        h = F.elu(torch.addcmul(bias[:, None], self.target.inputs, first[:, None]))
        h = F.elu(torch.baddbmm(offset[:, None], h, second.unflatten(-1, (b, a)).mT))
        return torch.cat([h, torch.ones_like(h[..., :1])], dim=-1) * (self.outer_scale / self.target.noise_scale)


CHAINS = {
    "smoke": {"chains": 4, "num_leapfrog": [2, 4], "num_steps": 12, "burn_in": 4, "thin": 1, "kept": 30},
    "quick": {"chains": 8, "num_leapfrog": [10, 30], "num_steps": 120, "burn_in": 60, "thin": 1, "kept": 200},
    "paper": {"chains": 32, "num_leapfrog": [50, 150], "num_steps": 1_500, "burn_in": 500, "thin": 5, "kept": 2_000},
}


def reference_config(method: str, profile: str) -> dict:
    """Everything but the seed."""
    return (
        {"prior_scale": 1.0, "noise": NOISE, "step_size": 0.02, "target_acceptance": 0.8}
        | CHAINS[profile]
        | evaluated()
    )


def run_reference(config: dict, method: str, context: RunContext) -> Outcome:
    """HMC on the hidden layers from draws of the prior, completed by exact output layers, diagnosed on the grid."""
    target = posterior(config["prior_scale"], device=context.device)
    inner = LastLayerIntegrated(target)
    rng = torch.Generator(context.device).manual_seed(3_000 + context.seed)
    start = torch.randn(config["chains"], inner.dim, generator=rng, dtype=torch.float64, device=rng.device)
    result = run_hmc(config, inner.log_prob, start, context, rng, adapt=True)
    draws = torch.stack([inner.complete(u, rng) for u in result.samples.transpose(0, 1)])
    f = torch.stack([functions(target, chain) for chain in draws]).cpu()
    found, flat = diagnostics(f), f.transpose(0, 1).flatten(0, 1)
    kept = evenly(flat, config["kept"])
    at_fresh = functions(target, draws.transpose(0, 1).flatten(0, 1)[:: max(1, len(flat) // 1_000)], data(FRESH)[0])
    metrics = {
        "acceptance": float(result.acceptance.mean()),
        "step_size": result.step_size,
        "draws": float(len(flat)),
        "rhat_max": float(found["rhat"].max()),
        "rhat_median": float(found["rhat"].median()),
        "ess_min": float(found["ess"].min()),
        "sd_data": float(found["sd"][REGIONS["data"]].mean()),
        "sd_gap": float(found["sd"][REGIONS["gap"]].mean()),
        "sd_outside": float(found["sd"][REGIONS["outside"]].mean()),
        "log_likelihood": fresh_log_likelihood(at_fresh),
    }
    return Outcome(metrics, found | {"functions": kept.float()}, result.seconds)


REFERENCE = Experiment(
    name="livi-toy-reference",
    title="LIVI's toy: the posterior over functions by HMC, output layer integrated out",
    methods=("hmc",),
    config=reference_config,
    seeds=one_seed,
    run=run_reference,
)


def read_reference(profile: str) -> Functions:
    """The reference of a profile, from its record; where there is none, or a stale one, it is sampled now."""
    arrays = reference_arrays(REFERENCE, "hmc", profile)
    return Functions(arrays["mean"], arrays["sd"], arrays["functions"])


EXPERIMENTS = (REFERENCE,)
