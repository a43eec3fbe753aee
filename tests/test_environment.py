"""pyproject.toml, requirements.lock and environment.yml describe one environment; `make env` builds it."""

import ast
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from slow_files import SLOW

ROOT = Path(__file__).resolve().parents[1]
RECORDS_COME_FROM = {"torch": "2.11.0", "torchvision": "0.26.0"}


def read_pyproject() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def read_lock() -> str:
    return (ROOT / "requirements.lock").read_text()


def read_environment() -> dict:
    return yaml.safe_load((ROOT / "environment.yml").read_text())


def direct_dependencies(pyproject: dict) -> list[Requirement]:
    """Everything pyproject.toml asks for, extras included but for the peers in `bench`, which are not locked."""
    project = pyproject["project"]
    extras = project["optional-dependencies"]
    groups = [project["dependencies"], *(extras[name] for name in ("paper", "dev", "cluster", "book"))]
    return [Requirement(line) for group in groups for line in group]


def pins(lock: str) -> dict[str, str]:
    """Name -> version of the lines of the lock that count on this machine."""
    lines = [line for line in lock.splitlines() if line and not line.startswith("#")]
    requirements = [Requirement(line) for line in lines]
    active = [r for r in requirements if r.marker is None or r.marker.evaluate()]
    return {canonicalize_name(r.name): str(r.specifier).removeprefix("==") for r in active}


def unpinned(lock: str) -> list[str]:
    """The lines of the lock that are neither comment nor `name==version`, with or without a marker."""
    exact = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+( ; [a-z_0-9'()<>=!.*A-Z ]+)?")
    lines = [line for line in lock.splitlines() if line and not line.startswith("#")]
    return [line for line in lines if not exact.fullmatch(line)]


def disagreements(pyproject: dict, lock: str, environment: dict) -> list[str]:
    """One sentence for each way in which the three descriptions contradict each other; [] is right."""
    found = [f"not pinned exactly: {line}" for line in unpinned(lock)]
    if found:
        return found
    pinned = pins(lock)
    for requirement in direct_dependencies(pyproject):
        version = pinned.get(canonicalize_name(requirement.name))
        if version is None:
            found.append(f"{requirement.name} is not in the lock")
        elif not requirement.specifier.contains(version, prereleases=True):
            found.append(f"the lock has {requirement.name} {version}, pyproject.toml wants {requirement.specifier}")
    for name, version in RECORDS_COME_FROM.items():
        if pinned.get(name) != version:
            found.append(f"the lock has {name} {pinned.get(name)}, the records come from {version}")
    return found + environment_disagreements(pyproject, environment)


def environment_disagreements(pyproject: dict, environment: dict) -> list[str]:
    """What of environment.yml is not: a permitted Python, pip, the lock and this package."""
    conda = [entry for entry in environment["dependencies"] if isinstance(entry, str)]
    pip = [entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict)]
    python = [entry.removeprefix("python=").strip("=") for entry in conda if entry.startswith("python")]
    found = []
    if len(python) != 1 or not Requirement(f"python{pyproject['project']['requires-python']}").specifier.contains(
        python[0]
    ):
        found.append(f"environment.yml has Python {python}, pyproject.toml wants another")
    if pip != [["-r requirements.lock", "-e ."]]:
        found.append(f"environment.yml installs {pip} instead of the lock and this package")
    if [entry.split("=")[0] for entry in conda] != ["python", "pip"]:
        found.append(f"environment.yml takes packages from conda that the lock should pin: {conda}")
    return found


def test_the_three_descriptions_agree():
    assert disagreements(read_pyproject(), read_lock(), read_environment()) == []


LOCK_CHANGES = {
    "missing": (r"(?m)^numpy==.*\n", "", "numpy is not in the lock"),
    "out of range": (r"(?m)^pandas==.*$", "pandas==99.0", "the lock has pandas 99.0"),
    "other torch": (r"(?m)^torch==.*$", "torch==2.10.0", "the records come from 2.11.0"),
    "range": (r"(?m)^tqdm==.*$", "tqdm>=4", "not pinned exactly: tqdm>=4"),
    "wildcard": (r"(?m)^tqdm==.*$", "tqdm==4.*", "not pinned exactly: tqdm==4.*"),
    "index": (r"\A", "--index-url https://example.org/simple\n", "not pinned exactly: --index-url"),
    "local wheel": (r"\A", "tqdm @ file:///wheels/tqdm.whl\n", "not pinned exactly: tqdm @ file"),
}


@pytest.mark.parametrize("change", LOCK_CHANGES)
def test_a_changed_lock_is_noticed(change):
    pattern, replacement, message = LOCK_CHANGES[change]
    changed, count = re.subn(pattern, replacement, read_lock())
    assert count == 1
    found = disagreements(read_pyproject(), changed, read_environment())
    assert any(message in sentence for sentence in found), found


@pytest.mark.parametrize(
    "dependencies",
    [
        ["python=3.10", "pip", {"pip": ["-r requirements.lock", "-e ."]}],
        ["python=3.11", "pip", {"pip": ["-r requirements.txt", "-e ."]}],
        ["python=3.11", "pip", {"pip": ["-r requirements.lock"]}],
        ["python=3.11", "pip", "numpy", {"pip": ["-r requirements.lock", "-e ."]}],
        ["pip", {"pip": ["-r requirements.lock", "-e ."]}],
    ],
    ids=["old python", "other file", "package missing", "conda package", "no python"],
)
def test_a_changed_conda_environment_is_noticed(dependencies):
    assert disagreements(read_pyproject(), read_lock(), {"dependencies": dependencies}) != []


def test_a_changed_range_is_noticed():
    pyproject = read_pyproject()
    pyproject["project"]["dependencies"].append("numpy>=99")
    assert any("numpy" in sentence for sentence in disagreements(pyproject, read_lock(), read_environment()))


def test_direct_dependencies_are_installed_as_locked():
    pinned = pins(read_lock())
    for requirement in direct_dependencies(read_pyproject()):
        installed = importlib.metadata.version(requirement.name)
        locked = Requirement(f"{requirement.name}=={pinned[canonicalize_name(requirement.name)]}")
        # A local label counts as equal: 2.11.0+cpu is torch 2.11.0.
        assert locked.specifier.contains(installed), f"{requirement.name} {installed}: make env installs {locked}"


def test_the_lock_holds_everything_its_packages_need():
    pinned = pins(read_lock())
    missing = []
    for name in pinned:
        for line in importlib.metadata.requires(name) or []:
            needed = Requirement(line)
            if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
                continue
            version = pinned.get(canonicalize_name(needed.name))
            if version is None or not needed.specifier.contains(version, prereleases=True):
                missing.append(f"{name} needs {needed}, the lock has {version}")
    assert missing == []


def imported_modules(source: str) -> set[str]:
    """The top-level names that Python source imports from outside its own package."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(node.module.split(".")[0])
    return found


def notebook_source(path: Path) -> str:
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    lines = "\n".join("".join(cell["source"]) for cell in cells).splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith(("%", "!")))


def test_every_import_is_a_declared_dependency():
    everything = read_pyproject()["project"]["optional-dependencies"].values()
    declared = {canonicalize_name(r.name) for r in direct_dependencies(read_pyproject())}
    declared |= {canonicalize_name(Requirement(line).name) for extra in everything for line in extra}
    providers = importlib.metadata.packages_distributions()
    ours = {"gpvi_lib", "benchmarks", "__future__", *(path.stem for path in (ROOT / "tests").rglob("*.py"))}
    undeclared = {}
    for path in sorted(
        p for folder in ("gpvi_lib", "tests", "notebooks", "benchmarks") for p in (ROOT / folder).rglob("*.*")
    ):
        if path.suffix not in (".py", ".ipynb") or ".ipynb_checkpoints" in path.parts:
            continue
        source = notebook_source(path) if path.suffix == ".ipynb" else path.read_text()
        for module in imported_modules(source) - ours - set(sys.stdlib_module_names):
            if declared.isdisjoint(canonicalize_name(name) for name in providers.get(module, [module])):
                undeclared.setdefault(module, str(path.relative_to(ROOT)))
    assert undeclared == {}


def test_what_make_check_leaves_out_is_there():
    assert set(SLOW) <= {path.stem for path in (ROOT / "tests").glob("test_*.py")}


def make(*arguments: str) -> subprocess.CompletedProcess:
    """Run make in the repository, free of the variables of a make that runs these tests."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    kept = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")}
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=ROOT, env=kept, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def test_an_executor_is_refused_where_its_runs_would_not_be_read():
    done = make("figures", "EXECUTOR=dask", "VENV=", f"PYTHON={sys.executable}")
    assert done.returncode != 0 and "EXECUTOR is for PROFILE=paper" in done.stderr


def write_python(path: Path, case: str) -> Path:
    """A stand-in for Python that answers `case` (lines of a shell `case`) and is this Python otherwise."""
    path.write_text(f'#!/bin/sh\ncase "$*" in\n{case}\nesac\nexec "{sys.executable}" "$@"\n')
    path.chmod(0o755)
    return path


def test_make_lint_finds_nothing():
    """`make test` has it here, beside the other tests; `make check` begins with it."""
    done = make("lint", "VENV=", f"PYTHON={sys.executable}")
    assert done.returncode == 0, done.stdout + done.stderr


def test_bare_make_names_every_target_in_one_line():
    listed = re.findall(r"(?m)^make (\w+) +\S.*$", make().stdout)
    text = (ROOT / "Makefile").read_text()
    assert sorted(listed) == sorted(re.search(r"(?m)^\.PHONY: (.*)$", text).group(1).split())


PYTHONS = {
    "old": ("*print*) echo 3.9.1; exit 0;;\n*version_info*) exit 1;;", "is Python 3.9.1, too old"),
    "broken": ("*) exit 127;;", "cannot run"),
    "without ensurepip": ("*ensurepip*) exit 1;;", "python3-venv"),
}


@pytest.mark.parametrize("kind", PYTHONS)
def test_an_unsuitable_python_is_one_clear_error(kind, tmp_path):
    case, message = PYTHONS[kind]
    folder = tmp_path / "a folder"
    folder.mkdir()
    python = write_python(folder / "python3", case)
    done = make("env", f"PYTHON={python}", f"VENV={folder / 'env'}")
    assert done.returncode != 0
    ours = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert len(ours) == 1 and message in ours[0] and "make env PYTHON=" in ours[0]
    assert not (folder / "env").exists()


def test_a_folder_that_is_not_ours_is_never_removed(tmp_path):
    (tmp_path / "precious").write_text("thesis")
    done = make("env", f"PYTHON={sys.executable}", f"VENV={tmp_path}")
    assert done.returncode != 0 and "not made by this Makefile" in done.stderr
    assert (tmp_path / "precious").read_text() == "thesis"


def stamped_environment(folder: Path, lock: str) -> Path:
    """What a finished build leaves, as far as the Makefile looks at it."""
    (folder / "bin").mkdir(parents=True)
    write_python(folder / "bin" / "python", "never) ;;")
    (folder / "built-from").write_text(f"{ROOT}\n{lock}")
    shutil.copy(ROOT / "pyproject.toml", folder / "installed-from")
    return folder


@pytest.mark.parametrize(
    ("lock", "rebuilt"),
    [(read_lock(), False), (read_lock() + "new==1\n", True), ("", True)],
    ids=["same", "new", "cut"],
)
def test_the_environment_is_rebuilt_only_for_another_lock(lock, rebuilt, tmp_path):
    folder = stamped_environment(tmp_path / "env", lock)
    done = make("env", "PYTHON=/no/such/python", f"VENV={folder}")
    assert ("cannot run" in done.stderr) == rebuilt == (done.returncode != 0)
    assert done.stdout == ""


@pytest.mark.parametrize("running", [True, False], ids=["running", "killed"])
def test_a_second_make_does_not_remove_what_the_first_is_building(running, tmp_path):
    """The folder beside it holds the process that builds; of one that was killed it is no obstacle."""
    half, building = tmp_path / "an env" / "half", tmp_path / "an env.building"
    (half.parent / "bin").mkdir(parents=True)
    building.mkdir()
    for path in (half, half.parent / "built-from"):
        path.write_text("")
    ended = subprocess.Popen(["true"])
    ended.wait()
    (building / "process").write_text(f"{os.getpid() if running else ended.pid}\n")
    python = write_python(tmp_path / "python3", '"-m venv"*) exit 3;;')
    done = make("env", f"PYTHON={python}", f"VENV={half.parent}")
    assert done.returncode != 0 and half.exists() == building.exists() == running
    assert (f"is being built already, by process {os.getpid()}" in done.stderr) == running
    assert ("building" in done.stdout) == (not running)
    assert (f"delete {building} first" in done.stderr) == running


def test_a_build_that_has_not_written_its_number_yet_is_one(tmp_path):
    building = tmp_path / "env.building"
    building.mkdir()
    done = make("env", f"PYTHON={write_python(tmp_path / 'python3', '')}", f"VENV={tmp_path / 'env'}")
    assert done.returncode != 0 and "by process unknown: wait until it is done" in done.stderr
    assert f"delete {building} first" in done.stderr and building.exists() and not (tmp_path / "env").exists()


def test_a_number_of_this_very_shell_was_left_by_another_container(tmp_path):
    """The shell asks Python for ensurepip just before it looks who builds; then it finds its own number."""
    building = tmp_path / "env.building"
    left = f'mkdir "{building}"; echo $PPID > "{building}/process"; exit 0;;'
    python = write_python(tmp_path / "python3", f'*ensurepip*) {left}\n"-m venv"*) exit 3;;')
    done = make("env", f"PYTHON={python}", f"VENV={tmp_path / 'env'}")
    assert "building" in done.stdout and "is being built already" not in done.stderr
    assert not building.exists()


def test_a_build_that_another_make_has_ended_meanwhile_is_kept(tmp_path):
    """The other ends between this one's first look and its lock."""
    folder = stamped_environment(tmp_path / "env", "")
    ended = f'(pwd -P; cat requirements.lock) > "{folder}/built-from"; exit 0;;'
    python = write_python(tmp_path / "python3", f'*ensurepip*) {ended}\n"-m venv"*) exit 3;;')
    done = make("env", f"PYTHON={python}", f"VENV={folder}")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert (folder / "bin" / "python").exists() and not (tmp_path / "env.building").exists()


@pytest.mark.parametrize(("word", "fresh"), [("0", False), ("no", False), ("", False), ("1", True)])
def test_fresh_is_what_it_says(word, fresh, tmp_path):
    asked = told_python(tmp_path, "figures", f"FRESH={word}")
    assert "notebooks --profile quick" in asked and ("--fresh" in asked) == fresh


@pytest.mark.parametrize(
    ("given", "folder"),
    [("~/my data", "{home}/my data"), ("/my data", "/my data"), ("my data", "{root}/my data")],
)
def test_a_data_folder_is_absolute_and_may_begin_with_a_tilde(given, folder, tmp_path):
    asked = told_python(tmp_path, "scoreboard", f"DATA={given}")
    assert f"GPVI_DATA={folder.format(home=os.environ['HOME'], root=ROOT)}\n" in asked


def told_python(tmp_path: Path, *command: str) -> str:
    """What a target's Python is asked for, and with which data folder."""
    python = write_python(
        tmp_path / "python3",
        f'*"import gpvi_lib"*) exit 0;;\n*) echo "$* GPVI_DATA=$GPVI_DATA" >> "{tmp_path}/asked"; exit 0;;',
    )
    done = make(*command, "VENV=", f"PYTHON={python}")
    assert done.returncode == 0, done.stderr
    return (tmp_path / "asked").read_text()


# What `make processors` sets, one processor a line.
ROUNDING = (
    "ATEN_CPU_CAPABILITY",
    "MKL_CBWR",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
)
PROCESSORS = ["default,,,,,", "avx2,COMPATIBLE,AVX2,Haswell,,", ",,,,1,1", ",,,,2,2"]


@pytest.mark.parametrize("failing", ["no", "default,,,,,", ",,,,2,2"])
def test_the_notebooks_are_checked_as_on_every_other_processor(failing, tmp_path, monkeypatch):
    """All settings reach nbval, which leaves the committed figures alone; a failure under one is the target's."""
    for name in ROUNDING:
        monkeypatch.delenv(name, raising=False)
    settings = ",".join(f"${name}" for name in ROUNDING)
    note = f'echo "{settings} $GPVI_FIGURES" >> "{tmp_path}/seen"'
    python = write_python(
        tmp_path / "python",
        f'*"import gpvi_lib"*) exit 0;;\n*pytest*notebooks*--nbval*) {note}; [ "{settings}" != "{failing}" ]; exit;;',
    )
    done = make("processors", "VENV=", f"PYTHON={python}")
    assert (tmp_path / "seen").read_text().splitlines() == [f"{line} {ROOT}/build/processors" for line in PROCESSORS]
    assert (done.returncode != 0) == ("failed under" in done.stderr) == (failing != "no"), done.stderr


def test_ci_runs_make_test():
    commands = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if "make" in line]
    assert commands == ["exec make test"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    assert [step["run"] for step in jobs["test"]["steps"] if "run" in step] == [".ci/run"]
