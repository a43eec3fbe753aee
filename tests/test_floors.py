"""The floors of the library: imports go downwards only, and the method runs without what the floors above it need."""

import importlib
import importlib.metadata
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import gpvi_lib
from gpvi_lib import experiments
from gpvi_lib.experiments import MODULES

ROOT = Path(__file__).parents[1]
LINT = "import sys; from importlinter.cli import lint_imports as lint; sys.exit(lint(no_cache=True, no_logo=True))"


def lint(root: Path) -> subprocess.CompletedProcess:
    """The contracts of pyproject.toml, held against the package in ``root``."""
    return subprocess.run([sys.executable, "-c", LINT], cwd=root, capture_output=True, text=True)


@pytest.fixture
def copied(tmp_path):
    """A copy of the package and of its contracts."""
    shutil.copytree(ROOT / "gpvi_lib", tmp_path / "gpvi_lib", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "line", "contract"),
    [
        ("kernels.py", "from gpvi_lib.report import plotting", "each imports downwards only BROKEN"),
        ("lab/records.py", "from gpvi_lib.experiments import EXPERIMENTS", "each imports downwards only BROKEN"),
        ("kernels.py", "from gpvi_lib import directions", "no circles BROKEN"),
        ("kernels.py", "import pandas", "tqdm and safetensors BROKEN"),
        ("a_new_room.py", "import torch", "a_new_room"),
        (
            "experiments/overhead.py",
            "from gpvi_lib.experiments import energy",
            "but for variants and references BROKEN",
        ),
        (
            "experiments/overhead.py",
            "from gpvi_lib.experiments import smooth",
            "but for variants and references BROKEN",
        ),
        ("experiments/evaluation.py", "from gpvi_lib.experiments import energy", "variants and references BROKEN"),
        ("experiments/a_new_table.py", "import torch", "a_new_table"),
    ],
)
def test_an_arrow_that_goes_up_is_found(file, line, contract, copied):
    path = copied / "gpvi_lib" / file
    path.write_text((path.read_text() if path.exists() else "") + f"\n{line}\n")
    done = lint(copied)
    assert done.returncode != 0 and contract in re.sub(r"\s+", " ", done.stdout + done.stderr)


def test_every_module_with_experiments_is_registered():
    for found in pkgutil.iter_modules(experiments.__path__):
        module = importlib.import_module(f"gpvi_lib.experiments.{found.name}")
        assert not hasattr(module, "EXPERIMENTS") or module in MODULES, f"{found.name}: enter it in MODULES"


def test_a_module_is_called_as_the_experiments_that_it_registers():
    for module in MODULES:
        name = module.__name__.rpartition(".")[2].replace("_", "-")
        assert module.EXPERIMENTS
        for experiment in module.EXPERIMENTS:
            assert f"{experiment.name}-".startswith(f"{name}-"), (module, experiment.name)


def needed(names: list[str]) -> set[str]:
    """The distributions that these need, themselves included, without extras."""
    found: set[str] = set()
    queue = [canonicalize_name(name) for name in names]
    while queue:
        name = queue.pop()
        if name in found:
            continue
        found.add(name)
        try:
            lines = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:  # for another platform
            continue
        requirements = [Requirement(line) for line in lines]
        queue += [
            canonicalize_name(one.name)
            for one in requirements
            if one.marker is None or one.marker.evaluate({"extra": ""})
        ]
    return found


REFUSING = """
import sys
class Without:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in REFUSED else self.finder.find_spec(name, path, target)
    def __getattr__(self, name):
        return getattr(self.finder, name)
sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""


def test_the_first_example_runs_where_nothing_but_the_core_is_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    core = [Requirement(line).name for line in project["dependencies"]]
    assert {"torch", "tqdm"} <= set(core) and "pandas" not in core
    allowed = needed(core)
    providers = importlib.metadata.packages_distributions()
    refused = sorted(
        module
        for module, owners in providers.items()
        if module != "gpvi_lib" and allowed.isdisjoint(canonicalize_name(owner) for owner in owners)
    )
    assert {"pandas", "matplotlib", "sklearn", "typer", "IPython", "pyro"} <= set(refused)
    example = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    short, count = re.subn(r"steps=[\d_]+", "steps=20", example)
    assert count == 1
    flow = (
        "from gpvi_lib import Flow, GPVIError\n"
        "try:\n    Flow(2, rng=rng)\n"
        "except GPVIError as error:\n    assert 'pyro is not installed' in str(error) and '[paper]' in str(error)\n"
        "else:\n    raise AssertionError('a flow without Pyro')\n"
    )
    every = "import gpvi_lib\nassert all(hasattr(gpvi_lib, name) for name in gpvi_lib.__all__)\n"
    script = f"REFUSED = {set(refused)!r}\n{REFUSING}\n{short}\nassert samples.shape == (1_000, 20)\n{every}{flow}"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert not done.returncode, done.stderr


def test_no_name_means_a_module_and_something_else():
    """`import gpvi_lib.x` and `from gpvi_lib import x` would differ."""
    modules = {path.stem for path in Path(gpvi_lib.__file__).parent.glob("[a-z]*")}
    assert [name for name in modules if not isinstance(vars(gpvi_lib).get(name, gpvi_lib), ModuleType)] == []
