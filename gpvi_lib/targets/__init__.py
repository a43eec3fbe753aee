"""Targets: unnormalised densities on R^d, optionally evaluated on minibatches of data."""

from gpvi_lib.targets.base import Target, check_finite, differentiable_score, log_prob, score
from gpvi_lib.targets.classification import ClassificationPosterior, MLPClassificationPosterior
from gpvi_lib.targets.constrained import Constrained, ordered
from gpvi_lib.targets.energy import EnergyPotential, PlaneGrid
from gpvi_lib.targets.gaussian import Gaussian
from gpvi_lib.targets.likelihoods import CategoricalLikelihood, LearnedNoise, NormalLikelihood, NormalMixture
from gpvi_lib.targets.logistic import LogisticPosterior, LogisticPrior
from gpvi_lib.targets.posterior import Posterior, StreamedPosterior
from gpvi_lib.targets.priors import FlatFirst, FlatPrior, NormalPrior, ScaleMixturePrior
from gpvi_lib.targets.problems import ProblemFamily
from gpvi_lib.targets.regression import BayesianLinearRegression, RegressionPosterior
from gpvi_lib.targets.toy import Banana, GaussianMixture

__all__ = [
    "Banana",
    "BayesianLinearRegression",
    "CategoricalLikelihood",
    "ClassificationPosterior",
    "Constrained",
    "EnergyPotential",
    "FlatFirst",
    "FlatPrior",
    "Gaussian",
    "GaussianMixture",
    "LearnedNoise",
    "LogisticPosterior",
    "LogisticPrior",
    "MLPClassificationPosterior",
    "NormalLikelihood",
    "NormalMixture",
    "NormalPrior",
    "PlaneGrid",
    "Posterior",
    "ProblemFamily",
    "RegressionPosterior",
    "ScaleMixturePrior",
    "StreamedPosterior",
    "Target",
    "check_finite",
    "differentiable_score",
    "log_prob",
    "ordered",
    "score",
]
