"""The identities that the notebooks assert are about the library: break it, and the notebook that derives it fails."""

import shutil
from pathlib import Path

import pytest
import smoke_runs
import toy_experiment
from test_notebooks import NOTEBOOKS

from gpvi_lib import paths

# Number of the notebook -> (file of gpvi_lib, what it says, what would be wrong).
MUTATIONS = {
    "00": ("inverse.py", "linearization.dense(), rhs, left", "linearization.dense().mT, rhs, left"),
    "00a": ("objectives.py", "z[:n], z[n:], rng)", "z[n:], z[:n], rng)"),
    "01": ("objectives.py", "z[:n], z[n:], rng)", "z[:n], z[:n], rng)"),
    "02": ("samplers.py", "else a + torch.diag(self.noise_scale[", "else a - torch.diag(self.noise_scale["),
    "03": ("inverse.py", "source = source - (jacobian @", "source = source + (jacobian @"),
    "04": ("inverse.py", "return value.abs() <= eps * scale", "return value <= eps * scale"),
    "05": ("kernels.py", "return k, k * (2 * rate)", "return k, k * rate"),
    "06": (
        "directions.py",
        "(k.mT @ score + kernel_gradient_sum(weight, x, x if",
        "(k.mT @ score - kernel_gradient_sum(weight, x, x if",
    ),
    "07": ("metrics.py", "(4 / h**2) * squared", "(2 / h**2) * squared"),
    "08": ("hamiltonian.py", "else 0.5 * step_size", "else step_size"),
    "10": (
        "experiments/output_layer.py",
        "- log_determinant + 0.5 * half",
        "+ log_determinant + 0.5 * half",
    ),
    "11": (
        "directions.py",
        "phi = -(score + linalg.solve(regularised",
        "phi = -(score - linalg.solve(regularised",
    ),
    "12": ("targets/energy.py", "return -0.5 * (residual / width)", "return -1.0 * (residual / width)"),
    "13": ("targets/regression.py", "torch.linalg.inv(gram)", "gram"),
    "14": ("targets/classification.py", ".mul_(outputs[layer - 1].sign())", ""),
    "15": ("metrics.py", ".softmax(-1).var(0, correction=0).sum(-1)", ".softmax(-1).var(0, correction=1).sum(-1)"),
    "16": ("report/open_category.py", "return 1 - below(known, unknown), below", "return below(known, unknown), below"),
    "17": ("targets/likelihoods.py", "mean, log_scale.exp(), log_scale", "mean, log_scale.exp(), -log_scale"),
    "18": ("langevin.py", "return mean + (2 * step).sqrt()", "return mean + step.sqrt()"),
    "19": ("targets/logistic.py", "last = 0.5 * w.shape[1] + 1 - precision", "last = 0.5 * w.shape[1] - precision"),
    "20": ("directions.py", "return -(score + repulsion)", "return -(score - repulsion)"),
    "22": ("experiments/fpovi_bandits.py", "found = -0.5 * ((values", "found = -1.0 * ((values"),
    "23": ("entropy.py", "(1 + math.log(2 * math.pi)) + scale.log()", "(1 + math.log(2 * math.pi)) - scale.log()"),
    "24": ("entropy.py", "return constant + lower.diagonal(", "return constant + 2 * lower.diagonal("),
    "25": (
        "targets/posterior.py",
        "value if self.power == 1 else self.power * value",
        "value if self.power == 1 else value",
    ),
    "26": ("metrics.py", "torch.tensordot(width, gap.abs(), dims=1)", "torch.tensordot(width, gap, dims=1)"),
}


READS_RECORDS_ALONE = {"21"}
"""Notebooks that assert nothing of the library itself."""


def test_every_notebook_has_an_edit_that_it_must_notice():
    numbers = {path.stem.split("-")[0] for path in NOTEBOOKS}
    assert numbers - set(MUTATIONS) == READS_RECORDS_ALONE, "enter an edit for the new one in MUTATIONS"


@pytest.mark.parametrize("number", MUTATIONS)
def test_a_notebook_fails_with_a_broken_library(number, monkeypatch, tmp_path):
    file, right, wrong = MUTATIONS[number]
    unfinished = shutil.ignore_patterns("*.pyc.*")  # another process may be writing them
    package = shutil.copytree(paths.repository() / "gpvi_lib", tmp_path / "gpvi_lib", ignore=unfinished)
    source = (package / file).read_text()
    assert source.count(right) == 1
    (package / file).write_text(source.replace(right, wrong))
    for compiled in (package / file).parent.glob(f"__pycache__/{Path(file).stem}.*"):
        compiled.unlink()
    toy_experiment.redirect(monkeypatch, tmp_path)
    (notebook,) = [path for path in NOTEBOOKS if path.stem.startswith(f"{number}-")]
    error, _ = smoke_runs.run(notebook, library=tmp_path)
    assert error == "AssertionError"
