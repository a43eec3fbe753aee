# Everything a reader or a CI machine runs; bare `make` lists it.
# GNU make 3.81 or later. The path of the repository may contain spaces: quote every use of a path,
# and let no rule depend on a file, for make itself cannot name such paths.

PYTHON ?= python3
VENV ?= .venv
# Two notebooks at a time: each keeps its own copy of torch and its data in memory.
JOBS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1); [ "$$n" -lt 2 ] && echo 1 || echo 2)
# Test files at a time, one thread of torch each.
WORKERS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1); [ "$$n" -gt 4 ] && echo 4 || echo "$$n")
COVERAGE = 90

# Of the environment in use: .venv, or with an empty VENV the one that PYTHON belongs to.
PY = $(if $(strip $(VENV)),$(VENV)/bin/python,$(PYTHON))
ifneq ($(strip $(VENV)),)
unexport PYTHONHOME
unexport PYTHONPATH
endif
# Notebook kernels come from this environment, and figures are drawn inline whatever the shell prefers.
export JUPYTER_PREFER_ENV_PATH = 1
unexport MPLBACKEND
# A ~ that the shell has left as it is (zsh and dash do, after DATA=) is the home folder's.
ifneq ($(filter ~/%,$(firstword $(DATA))),)
override DATA := $(subst ~/,$(HOME)/,$(DATA))
endif
# Kernels run inside notebooks/, so a relative folder is made absolute here.
ifneq ($(strip $(DATA)),)
export GPVI_DATA = $(if $(filter /%,$(firstword $(DATA))),$(DATA),$(CURDIR)/$(DATA))
endif
# FRESH=0 is no wish for it.
override FRESH := $(filter-out 0 no,$(FRESH))

.DEFAULT_GOAL := help
.PHONY: help env figures test check processors lint lab book notebooks scoreboard bench dist lock clean distclean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "Variables: PYTHON=$(PYTHON)  VENV=$(VENV) (empty: use PYTHON's own environment)  JOBS=$(JOBS)"
	@echo "           PROFILE=smoke|quick|paper  FRESH=1 (reuse no record but references)  DEVICE=cpu|cuda|auto"
	@echo "           DATA=folder of the data sets (data/ unless given)"
	@echo "           EXECUTOR=dask|slurm  SCHEDULER=address of Dask's, or submitit's cluster: figures' runs go there"

# built-from holds the path and the lock that the environment was built from: whole only once the build
# is, and there from the first moment, so that a folder without it is never mistaken for ours.
# .venv.building holds the process that builds: a second one would remove what the first has made, so it looks again
# whether there is still something to build. A number of this very shell was left by another container's.
# installed-from is the pyproject.toml of the last editable install.
env: ## build .venv from requirements.lock; does nothing while both stay the same
ifeq ($(strip $(VENV)),)
	@"$(PYTHON)" -P -c 'import gpvi_lib, torch' </dev/null 2>/dev/null || { echo "gpvi: $(PYTHON) has no gpvi environment;" \
	  "create one with: conda env create -f environment.yml" >&2; exit 1; }
else
	@set -e; \
	fail() { echo "gpvi: $$1" >&2; exit 1; }; \
	origin() { pwd -P; cat requirements.lock; }; \
	built() { origin | cmp -s - "$(VENV)/built-from" && "$(PY)" -c '' </dev/null 2>/dev/null; }; \
	if ! built; then \
	  found=$$("$(PYTHON)" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' </dev/null 2>/dev/null) || \
	    fail "cannot run '$(PYTHON)'; name a Python 3.11 or later: make env PYTHON=/path/to/python3"; \
	  "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' </dev/null || \
	    fail "'$(PYTHON)' is Python $$found, too old; name a Python 3.11 or later: make env PYTHON=/path/to/python3"; \
	  "$(PYTHON)" -c 'import ensurepip, venv' </dev/null 2>/dev/null || \
	    fail "'$(PYTHON)' cannot make a virtual environment (no ensurepip: on Debian or Ubuntu install python3-venv); name another: make env PYTHON=/path/to/python3"; \
	  if [ "$(VENV)" != .venv ] && [ -n "$$(ls -A "$(VENV)" 2>/dev/null)" ] && [ ! -e "$(VENV)/built-from" ]; then \
	    fail "$(VENV) is there already and not made by this Makefile; name another folder, or use it as it is: make VENV= PYTHON=$(VENV)/bin/python"; \
	  fi; \
	  folder="$(VENV)"; building="$${folder%/}.building"; \
	  mkdir -p "$$(dirname "$$building")"; \
	  if ! mkdir "$$building" 2>/dev/null; then \
	    process=$$(cat "$$building/process" 2>/dev/null) || :; \
	    if [ -z "$$process" ] || { [ "$$process" != $$$$ ] && kill -0 "$$process" 2>/dev/null; }; then \
	      fail "$(VENV) is being built already, by process $${process:-unknown}: wait until it is done, and run make again (if that process is no make's, delete $$building first)"; \
	    fi; \
	  fi; \
	  trap 'rm -rf "$$building"' EXIT; \
	  echo $$$$ > "$$building/process"; \
	  if ! built; then \
	    echo "gpvi: building $(VENV) with Python $$found (about 6 GB on Linux; minutes, once)"; \
	    rm -rf "$(VENV)"; \
	    mkdir -p "$(VENV)"; \
	    : > "$(VENV)/built-from"; \
	    "$(PYTHON)" -m venv "$(VENV)" </dev/null; \
	    "$(PY)" -m pip install --no-input --no-user --disable-pip-version-check --no-deps -r requirements.lock </dev/null || \
	      fail "the packages of requirements.lock could not be installed, see above; then run make env again"; \
	    origin > "$(VENV)/built-from"; \
	  fi; \
	fi; \
	if ! cmp -s pyproject.toml "$(VENV)/installed-from"; then \
	  "$(PY)" -m pip install --quiet --no-input --no-user --disable-pip-version-check \
	    --no-deps --no-build-isolation --editable . </dev/null; \
	  cp pyproject.toml "$(VENV)/installed-from"; \
	fi
endif

figures: env ## run every notebook (PROFILE=quick unless given) and print its scoreboard; at paper EXECUTOR spreads the runs
	$(if $(EXECUTOR),@[ "$(PROFILE)" = paper ] || { echo "gpvi: EXECUTOR is for PROFILE=paper: at others the notebooks \
	compute their short runs themselves" >&2; exit 1; })
	$(if $(EXECUTOR),@"$(PY)" -m gpvi_lib run --profile paper --executor $(EXECUTOR) $(if $(FRESH),--fresh) \
	  $(if $(SCHEDULER),--scheduler "$(SCHEDULER)") $(if $(DEVICE),--device $(DEVICE)) </dev/null)
	@"$(PY)" -m gpvi_lib notebooks --profile $(or $(PROFILE),quick) --jobs $(JOBS) \
	  $(if $(DEVICE),--device $(DEVICE)) $(if $(FRESH),$(if $(EXECUTOR),,--fresh)) </dev/null
	@"$(PY)" -m gpvi_lib scoreboard --profile $(or $(PROFILE),quick) </dev/null
	@echo "The figures are in $${GPVI_FIGURES:-figures}/$(or $(PROFILE),quick)/"

test: env ## all that CI checks: tests with coverage (lint is one of them), committed notebooks against their outputs
	@OMP_NUM_THREADS=1 "$(PY)" -m pytest -q tests notebooks --nbval --nbval-current-env -n $(WORKERS) --dist loadfile \
	  --no-loadscope-reorder --durations=30 -rs --cov=gpvi_lib --cov-fail-under=$(COVERAGE) </dev/null

check: lint ## for every edit: lint, and the tests that run no experiment, notebook or command line
	@OMP_NUM_THREADS=1 "$(PY)" -m pytest -q tests -m "not slow" -rs -n $(WORKERS) --dist loadfile </dev/null

# Another processor rounds differently, and so does another number of threads: torch without vector instructions;
# torch, oneDNN, MKL and numpy's OpenBLAS as on one with AVX2 and no more; one thread and two. On a machine that
# cannot do one of these it is ignored. Figures go to build/, for they differ in their last digits.
PROCESSORS = "ATEN_CPU_CAPABILITY=default" \
  "ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=COMPATIBLE ONEDNN_MAX_CPU_ISA=AVX2 OPENBLAS_CORETYPE=Haswell" \
  "OMP_NUM_THREADS=1 MKL_NUM_THREADS=1" "OMP_NUM_THREADS=2 MKL_NUM_THREADS=2"
CHECKED ?= notebooks tests/claims

processors: env ## nightly: notebooks against their outputs, and claims, as other processors round (CHECKED=tests: all tests)
	@failed=; for settings in $(PROCESSORS); do \
	  echo "gpvi: $(CHECKED) under $$settings"; \
	  env $$settings GPVI_FIGURES="$(CURDIR)/build/processors" "$(PY)" -m pytest -q $(CHECKED) \
	    --nbval --nbval-current-env -n $(WORKERS) --dist loadfile --no-loadscope-reorder \
	    </dev/null || failed="$$failed; $$settings"; \
	done; [ -z "$$failed" ] || { echo "gpvi: failed under $${failed#; }" >&2; exit 1; }

lint: env ## ruff on library, tests and notebooks; mypy on the library; its floors import downwards only
	@"$(PY)" -m ruff check . </dev/null
	@"$(PY)" -m ruff format --check . </dev/null
	@"$(PY)" -m mypy </dev/null
	@"$(PY)" -c 'import sys; from importlinter.cli import lint_imports as lint; \
	  sys.exit(lint(cache_dir="build/import-linter", no_logo=True))' </dev/null

lab: env ## JupyterLab, open at the overview
	@"$(PY)" -m jupyterlab --config=docs/lab.py notebooks/00-overview.ipynb

notebooks: env ## execute the committed notebooks again at their own parameters and replace them
	@"$(PY)" -m gpvi_lib refresh --jobs $(JOBS) </dev/null

scoreboard: env ## build and print the scoreboard (PROFILE=paper unless given)
	@"$(PY)" -m gpvi_lib scoreboard --profile $(or $(PROFILE),paper) </dev/null

book: env ## build the web book in build/book from the committed notebooks; it works offline
	@"$(PY)" -m sphinx -q -W --keep-going -c docs . build/book </dev/null
	@echo "the book: build/book/index.html"

bench: env ## time a step of every method, as ratios in one run (DEVICE=cpu unless given); other libraries with the extra `bench`
	@"$(PY)" -m benchmarks $(if $(DEVICE),--device $(DEVICE)) </dev/null

# The wheel is installed where nothing else is, and there README's first example must run.
dist: ## build sdist and wheel into build/dist, check them, and try the wheel in an environment of its own
	@rm -rf build/dist build/trial
	@"$(PYTHON)" -m venv --clear build/packaging </dev/null
	@build/packaging/bin/python -m pip install --quiet --no-input --disable-pip-version-check build twine </dev/null
	@build/packaging/bin/python -m build --outdir build/dist . </dev/null
	@build/packaging/bin/python -m twine check --strict build/dist/* </dev/null
	@"$(PYTHON)" -m venv build/trial </dev/null
	@build/trial/bin/python -m pip install --quiet --no-input --disable-pip-version-check build/dist/*.whl </dev/null
	@build/trial/bin/python -c 'import re; text = open("README.md").read(); \
	  print(re.findall(r"```python\n(.*?)```", text, re.S)[0])' > build/example.py
	@cd build && trial/bin/python example.py </dev/null
	@echo "gpvi: build/dist holds a wheel on which README's first example runs"

lock: ## resolve requirements.lock from pyproject.toml, keeping each present pin that still fits
	@"$(PYTHON)" -m venv --clear build/lock </dev/null
	@build/lock/bin/python -m pip install --quiet --no-input --disable-pip-version-check uv </dev/null
	@build/lock/bin/python -m uv pip compile --quiet --universal --python-version 3.11 --extra paper --extra dev --extra cluster --extra book \
	  --no-annotate --custom-compile-command "make lock" --output-file requirements.lock \
	  pyproject.toml requirements.in </dev/null

clean: ## remove caches, build/ (checkpoints too), and the results and figures of quick and smoke
	@rm -rf build results/quick results/smoke figures/quick figures/smoke \
	  .pytest_cache .ruff_cache .mypy_cache .coverage .coverage.* htmlcov
	@find gpvi_lib tests notebooks -type d \( -name __pycache__ -o -name .ipynb_checkpoints \) -prune \
	  -exec rm -rf {} +

distclean: clean ## clean, and remove .venv
	@rm -rf .venv .venv.building gpvi.egg-info
