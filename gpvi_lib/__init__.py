"""Generative particle variational inference and its family: one loop, three orthogonal choices.

A *target* (log-density), a *sampler* (what produces points) and an *objective* (which direction moves them, pulled
back through the sampler) meet in :func:`fit`.
"""

from gpvi_lib.directions import GFSF, SVGD, WSGLD, PiSGLD, SteinCritic
from gpvi_lib.entropy import EntropyBracket, elbo_bracket, entropy_bracket, linearized_entropy, smallest_singular_value
from gpvi_lib.errors import DataMissing, DivergedError, GPVIError, RecordError, UnknownName
from gpvi_lib.fitting import FitResult, fit
from gpvi_lib.flows import Flow
from gpvi_lib.function_points import KDE, Jitter, Uniform
from gpvi_lib.function_priors import ArcCosine, Centred, GaussianProcess, MomentMatched, SquaredExponential
from gpvi_lib.function_space import Evaluated, FunctionPosterior, FunctionSpaceParVI, InverseGamma
from gpvi_lib.hamiltonian import HMCResult, hmc, leapfrog
from gpvi_lib.inference_data import to_inference_data
from gpvi_lib.inverse import (
    BiCGSTABInverse,
    BlockInverse,
    DenseInverse,
    HelperInverse,
    InverseJacobian,
    bicgstab,
)
from gpvi_lib.kernels import RBF, kernel_gradient_sum, median_bandwidth
from gpvi_lib.langevin import LangevinNetwork, share_outside
from gpvi_lib.langevin_exact import LineGrid, gaussian_chain
from gpvi_lib.laplace import LastLayerLaplace, MaximumPosterior, last_layer_laplace
from gpvi_lib.laplace_full import (
    KroneckerLaplace,
    LayerFactors,
    LinearizedModule,
    LowRankLaplace,
    kronecker_laplace,
    low_rank_laplace,
)
from gpvi_lib.latent import LatentGenerator, LatentSampler, PointEstimate
from gpvi_lib.livi import AVB, KIVI, LIVI
from gpvi_lib.matrix_generators import MatrixGenerator, SplitMatrixGenerator
from gpvi_lib.metrics import binned_divergence, ksd_u_statistic, sliced_wasserstein, wasserstein_1d
from gpvi_lib.multiplicative_flows import MultiplicativeFlow
from gpvi_lib.networks import FlatMLP, FlatModule, cifar_cnn, lenet5, lenet5_unpadded, mlp
from gpvi_lib.objectives import (
    GPVI,
    KernelSteinDiscrepancy,
    MaximumLikelihood,
    NegativeELBO,
    OrientedELBO,
    ParVI,
    surrogate,
)
from gpvi_lib.optimizers import SGD, Adam, Optimizer, RMSprop
from gpvi_lib.samplers import Generator, Linearization, MeanField, Particles, Sampler
from gpvi_lib.saving import load_sampler, save_sampler
from gpvi_lib.schedules import AdaptiveLangevin, curvature, mala, power_decay
from gpvi_lib.targets import (
    Banana,
    BayesianLinearRegression,
    CategoricalLikelihood,
    ClassificationPosterior,
    Constrained,
    EnergyPotential,
    FlatFirst,
    FlatPrior,
    Gaussian,
    GaussianMixture,
    LearnedNoise,
    LogisticPosterior,
    LogisticPrior,
    NormalLikelihood,
    NormalMixture,
    NormalPrior,
    PlaneGrid,
    Posterior,
    ProblemFamily,
    RegressionPosterior,
    ScaleMixturePrior,
    StreamedPosterior,
    Target,
    ordered,
    score,
)
from gpvi_lib.trust import check
from gpvi_lib.trust_report import CheckReport, Finding
from gpvi_lib.wild import GaussNewtonParVI, OverProblems, PathELBO, RegressedParVI, SemiImplicitELBO

__version__ = "0.1.0"

__all__ = [
    "AVB",
    "GFSF",
    "GPVI",
    "KDE",
    "KIVI",
    "LIVI",
    "RBF",
    "SGD",
    "SVGD",
    "WSGLD",
    "Adam",
    "AdaptiveLangevin",
    "ArcCosine",
    "Banana",
    "BayesianLinearRegression",
    "BiCGSTABInverse",
    "BlockInverse",
    "CategoricalLikelihood",
    "Centred",
    "CheckReport",
    "ClassificationPosterior",
    "Constrained",
    "DataMissing",
    "DenseInverse",
    "DivergedError",
    "EnergyPotential",
    "EntropyBracket",
    "Evaluated",
    "Finding",
    "FitResult",
    "FlatFirst",
    "FlatMLP",
    "FlatModule",
    "FlatPrior",
    "Flow",
    "FunctionPosterior",
    "FunctionSpaceParVI",
    "GPVIError",
    "GaussNewtonParVI",
    "Gaussian",
    "GaussianMixture",
    "GaussianProcess",
    "Generator",
    "HMCResult",
    "HelperInverse",
    "InverseGamma",
    "InverseJacobian",
    "Jitter",
    "KernelSteinDiscrepancy",
    "KroneckerLaplace",
    "LangevinNetwork",
    "LastLayerLaplace",
    "LatentGenerator",
    "LatentSampler",
    "LayerFactors",
    "LearnedNoise",
    "LineGrid",
    "Linearization",
    "LinearizedModule",
    "LogisticPosterior",
    "LogisticPrior",
    "LowRankLaplace",
    "MatrixGenerator",
    "MaximumLikelihood",
    "MaximumPosterior",
    "MeanField",
    "MomentMatched",
    "MultiplicativeFlow",
    "NegativeELBO",
    "NormalLikelihood",
    "NormalMixture",
    "NormalPrior",
    "Optimizer",
    "OrientedELBO",
    "OverProblems",
    "ParVI",
    "Particles",
    "PathELBO",
    "PiSGLD",
    "PlaneGrid",
    "PointEstimate",
    "Posterior",
    "ProblemFamily",
    "RMSprop",
    "RecordError",
    "RegressedParVI",
    "RegressionPosterior",
    "Sampler",
    "ScaleMixturePrior",
    "SemiImplicitELBO",
    "SplitMatrixGenerator",
    "SquaredExponential",
    "SteinCritic",
    "StreamedPosterior",
    "Target",
    "Uniform",
    "UnknownName",
    "bicgstab",
    "binned_divergence",
    "check",
    "cifar_cnn",
    "curvature",
    "elbo_bracket",
    "entropy_bracket",
    "fit",
    "gaussian_chain",
    "hmc",
    "kernel_gradient_sum",
    "kronecker_laplace",
    "ksd_u_statistic",
    "last_layer_laplace",
    "leapfrog",
    "lenet5",
    "lenet5_unpadded",
    "linearized_entropy",
    "load_sampler",
    "low_rank_laplace",
    "mala",
    "median_bandwidth",
    "mlp",
    "ordered",
    "power_decay",
    "save_sampler",
    "score",
    "share_outside",
    "sliced_wasserstein",
    "smallest_singular_value",
    "surrogate",
    "to_inference_data",
    "wasserstein_1d",
]
