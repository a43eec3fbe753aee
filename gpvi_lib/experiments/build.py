"""From JSON-able specifications to samplers and objectives, shared by all experiments.

A specification is a dict with a ``kind`` and the keyword arguments of what it builds, for example
``{"kind": "gpvi", "num_samples": 100, "inverse": {"kind": "helper", "width": 10}}``.

A generator or a Stein critic without an ``activation`` is the paper's, with ReLU.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from gpvi_lib.directions import GFSF, SVGD, WSGLD, PiSGLD, SteinCritic
from gpvi_lib.errors import FoldWarning, KinkWarning, UnknownName
from gpvi_lib.experiments.function_gpvi import FunctionELBO
from gpvi_lib.fitting import Callback, FitResult, SomeSampler, fit
from gpvi_lib.flows import Flow
from gpvi_lib.function_points import KDE, Jitter, Uniform
from gpvi_lib.function_priors import ArcCosine, GaussianProcess, MomentMatched, SquaredExponential
from gpvi_lib.function_space import FunctionSpaceParVI, InverseGamma
from gpvi_lib.inverse import INVERSES
from gpvi_lib.kernels import RBF
from gpvi_lib.lab.experiment import RunContext
from gpvi_lib.laplace import MaximumPosterior
from gpvi_lib.latent import LatentGenerator, PointEstimate
from gpvi_lib.livi import AVB, KIVI, LIVI
from gpvi_lib.matrix_generators import MatrixGenerator, SplitMatrixGenerator
from gpvi_lib.multiplicative_flows import MultiplicativeFlow
from gpvi_lib.networks import FlatModule
from gpvi_lib.objectives import (
    GPVI,
    KernelSteinDiscrepancy,
    MaximumLikelihood,
    NegativeELBO,
    Objective,
    OrientedELBO,
    ParVI,
)
from gpvi_lib.optimizers import SGD, Adam, Optimizer, RMSprop
from gpvi_lib.samplers import Generator, MeanField, Particles, Sampler, standard_normal
from gpvi_lib.targets import Target
from gpvi_lib.wild import GaussNewtonParVI, PathELBO, RegressedParVI, SemiImplicitELBO

DIRECTIONS = {"svgd": SVGD, "gfsf": GFSF, "w_sgld": WSGLD, "pi_sgld": PiSGLD, "stein_critic": SteinCritic}
DTYPES = {"float32": torch.float32, "float64": torch.float64}
OBJECTIVES = {
    "parvi": ParVI,
    "gpvi": GPVI,
    "elbo": NegativeELBO,
    "oriented_elbo": OrientedELBO,
    "likelihood": MaximumLikelihood,
    "stein_discrepancy": KernelSteinDiscrepancy,
    "regression": RegressedParVI,
    "gauss_newton": GaussNewtonParVI,
    "path_elbo": PathELBO,
    "semi_implicit": SemiImplicitELBO,
    "function_space": FunctionSpaceParVI,
    "function_elbo": FunctionELBO,
    "livi": LIVI,
    "avb": AVB,
    "kivi": KIVI,
    "map": MaximumPosterior,
}
POINTS = {"jitter": Jitter, "kde": KDE, "uniform": Uniform}
FUNCTION_PRIORS = {
    "moment_matched": MomentMatched,
    "arc_cosine": ArcCosine,
    "squared_exponential": lambda length, **rest: GaussianProcess(SquaredExponential(length), **rest),
}
NOISE_PRIORS = {"inverse_gamma": InverseGamma}
PARTS: dict[str, dict] = {
    "direction": DIRECTIONS,
    "inverse": INVERSES,
    "points": POINTS,
    "prior": FUNCTION_PRIORS,
    "noise_prior": NOISE_PRIORS,
}


def _make(kinds: dict, spec: dict):
    spec = dict(spec)
    kind = spec.pop("kind")
    if kind not in kinds:
        raise UnknownName.among("kind", kind, kinds)
    return kinds[kind](**{key: tuple(v) if isinstance(v, list) else v for key, v in spec.items()})


PRINTED_ACTIVATION = {"activation": "relu"}
"""Of generators (tables 8 to 10; 6 prints none) and of the authors' Stein critic."""


def _with_activation(spec: dict) -> dict:
    return PRINTED_ACTIVATION | spec if spec["kind"] == "stein_critic" else spec


def _with_kernel(spec: dict) -> dict:
    spec = dict(spec)
    return {"kernel": RBF(spec.pop("bandwidth"))} | spec if "bandwidth" in spec else spec


def parvi(sampler: dict, direction: dict, num_samples: int | None = None) -> dict:
    """The specifications of a ParVI: of its sampler, and of its objective, with samples a step of an amortised one."""
    samples = {} if num_samples is None else {"num_samples": num_samples}
    return {"sampler": sampler, "objective": {"kind": "parvi", "direction": direction} | samples}


def gpvi(sampler: dict, inverse: dict, num_samples: int, **options) -> dict:
    """Those of GPVI by the functional gradient, with a specification of its inverse Jacobian."""
    objective = {"kind": "gpvi", "num_samples": num_samples, "inverse": inverse}
    return {"sampler": sampler, "objective": objective | options}


def elbo(sampler: dict, num_samples: int) -> dict:
    """Those of a sampler that is trained on its exact density."""
    return {"sampler": sampler, "objective": {"kind": "elbo", "num_samples": num_samples}}


def with_change(config: dict, change: dict) -> dict:
    """A configuration with some of its values changed, those inside ``sampler`` or ``objective`` too."""
    parts = {key: config[key] | value if isinstance(value, dict) else value for key, value in change.items()}
    return config | parts


def changed(config: dict, change: dict, inside: str = "") -> dict[str, object]:
    """The values that ``change`` changes in ``config``, each under its dotted path, as ``objective.num_samples``."""
    found: dict[str, object] = {}
    for key, value in change.items():
        if isinstance(value, dict):
            found |= changed(config[key], value, f"{inside}{key}.")
        elif value != config.get(key):
            found[inside + key] = value
    return found


def build_objective(spec: dict) -> Objective:
    """The objective of a specification; its parts, :data:`PARTS`, are specifications themselves.

    A direction or a ``gpvi`` objective may have a ``bandwidth``, that of its :class:`RBF`.
    """
    spec = _with_kernel(spec)
    for part, kinds in PARTS.items():
        if spec.get(part) is not None:
            spec[part] = _make(kinds, _with_activation(_with_kernel(spec[part])))
    return _make(OBJECTIVES, spec)


def build_sampler(spec: dict, dim: int, scale: float | Tensor, rng: torch.Generator) -> Sampler:
    """The sampler of a specification, on ``rng``'s device.

    Args:
        spec: ``particles`` (num), ``mean_field`` (scale, in units of the argument ``scale``), ``multiplicative_flow``
            (the same, with shapes, length, hidden), ``flow`` (depth, base_stdev) or ``generator`` (arguments of
            :class:`Generator`; ``noise_scale_unit: "prior"`` multiplies λ by ``scale``, one λ per coordinate, and
            ``output_scale: "prior"`` sets the scale of the initial output); ``latent_generator``, ``matrix_generator``
            and ``split_matrix_generator`` likewise. Any of them may have a ``dtype``, "float32" (the default) or
            "float64". ``point_estimate`` (start, sampler) puts numbers without noise before another sampler.
        dim: d.
        scale: the scale of the first samples, a number or ``(d,)``; usually that of the prior.
        rng: all randomness.
    """
    spec = dict(spec)
    kind, dtype = spec.pop("kind"), spec.pop("dtype", "float32")
    if dtype not in DTYPES:
        raise UnknownName.among("dtype", dtype, DTYPES)
    scale = torch.as_tensor(scale, dtype=DTYPES[dtype], device=rng.device).expand(dim)
    if kind == "particles":
        return Particles(scale * standard_normal((spec["num"], dim), rng, scale))
    if kind == "mean_field":
        return MeanField(scale * standard_normal((dim,), rng, scale), spec["scale"] * scale)
    if kind == "multiplicative_flow":
        mean, spread = scale * standard_normal((dim,), rng, scale), spec.pop("scale") * scale
        return MultiplicativeFlow(spec.pop("shapes"), mean, spread, **spec, rng=rng)
    if kind in GENERATORS:
        return _generator(GENERATORS[kind], spec, dim, scale, rng)
    if kind == "point_estimate":
        start = torch.as_tensor(spec["start"], dtype=scale.dtype, device=rng.device).reshape(-1)
        inner = spec["sampler"] | {"dtype": dtype}
        return PointEstimate(build_sampler(inner, dim - len(start), scale[len(start) :], rng), start)
    if kind == "flow":
        return Flow(dim, **spec, rng=rng, dtype=scale.dtype, device=rng.device)
    kinds = ("particles", "mean_field", "multiplicative_flow", *GENERATORS, "flow", "point_estimate")
    raise UnknownName.among("sampler", kind, kinds)


GENERATORS: dict[str, Callable[..., Sampler]] = {
    "generator": lambda dim, **spec: Generator(dim, **PRINTED_ACTIVATION | spec),
    "latent_generator": LatentGenerator,
    "matrix_generator": MatrixGenerator,
    "split_matrix_generator": SplitMatrixGenerator,
}


def _generator(make: Callable[..., Sampler], spec: dict, dim: int, scale: Tensor, rng: torch.Generator) -> Sampler:
    if spec.pop("noise_scale_unit", None) == "prior":
        spec["noise_scale"] = spec["noise_scale"] * scale
    if spec.pop("output_scale", None) == "prior":
        spec["output_scale"] = scale
    return make(dim, **spec, rng=rng, dtype=scale.dtype, device=rng.device)


def for_network(spec: dict, network: FlatModule) -> dict:
    """A sampler's specification with the shapes of the weights, where it asks for them."""
    return spec | ({"shapes": network.shapes} if spec["kind"] == "multiplicative_flow" else {})


OPTIMIZERS = {"adam": Adam, "rmsprop": RMSprop, "sgd": SGD}
"""By name: Adam unless a configuration says otherwise."""


def build_optimizer(config: dict) -> Optimizer:
    """The optimizer of a configuration: its name, lr and, where it has them, its other rates."""
    name = config.get("optimizer", "adam")
    if name not in OPTIMIZERS:
        raise UnknownName.among("optimizer", name, OPTIMIZERS)
    others = ("final_lr", "noise_scale_lr", "weight_decay")
    return OPTIMIZERS[name](config["lr"], **{other: config[other] for other in others if other in config})


def train(
    sampler: SomeSampler,
    target: Target,
    objective: Objective,
    config: dict,
    context: RunContext,
    rng: torch.Generator,
    callback: Callback[SomeSampler],
) -> FitResult:
    """:func:`fit` as a configuration says: steps, lr, history_every and, where it has them, its other settings.

    Rows as printed have kinks where a loss should have none, and maps that fold; those are results, not slips to be
    warned of.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FoldWarning)
        warnings.simplefilter("ignore", KinkWarning)
        return fit(
            sampler,
            target,
            objective,
            steps=config["steps"],
            optimizer=build_optimizer(config),
            batch_size=config.get("batch_size"),
            rng=rng,
            callback=callback,
            callback_every=config["history_every"],
            checkpoint=context.checkpoint,
            label=context.label,
            progress=context.progress,
        )
