"""A closed-form experiment that runs in milliseconds.

Its functions are at the top level of a module, as every experiment's, so that worker processes can import it.
"""

import signal

import torch

from gpvi_lib.errors import DivergedError
from gpvi_lib.experiments import Experiment, Outcome, RunContext, Score

CALLS: list[tuple[str, int]] = []
"""The cells that ran in this process."""


def config(method: str, profile: str) -> dict:
    """A configuration with a tuple, which JSON turns into a list."""
    return {"offset": {"svgd": 0.1, "gpvi": 0.2}.get(method, 0.3), "shape": (2, 3), "profile": profile}


def changed_config(method: str, profile: str) -> dict:
    """What `config` becomes when someone changes the experiment."""
    return config(method, profile) | {"offset": 0.7}


def config_of(steps: int, method: str, profile: str) -> dict:
    """The same with a number of steps, which changes nothing else."""
    return config(method, profile) | {"steps": steps}


def seeds(profile: str) -> tuple[int, ...]:
    """Three at paper."""
    return (0, 1, 2) if profile == "paper" else (0, 1)


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """error = offset + seed/100; some methods fail in the ways runs fail."""
    CALLS.append((method, context.seed))
    if method == "diverges" and context.seed == 1:
        raise DivergedError(f"{context.label} met nan at step 7; lower the learning rate")
    if method == "buggy" and context.seed == 1:
        raise ZeroDivisionError("a bug")
    if method == "killed" and context.seed == 1:
        signal.raise_signal(signal.SIGKILL)
    error = config["offset"] + context.seed / 100
    arrays = {"grid": torch.full(tuple(config["shape"]), error), "steps": torch.arange(context.seed + 1)}
    return Outcome({"error": error, "accuracy": 1 - error}, arrays if method != "plain" else {})


def deviations(method: str, profile: str) -> str:
    """One method differs from the paper."""
    return "tuned step size" if method == "gpvi_best" else ""


TOY = Experiment(
    name="toy",
    title="A toy in closed form",
    methods=("svgd", "gpvi", "gpvi_best", "plain"),
    config=config,
    seeds=seeds,
    run=run,
    scores=(
        Score(item="gpvi/table2", metric="sigma_error", better="lower", key="error"),
        Score(item="ours/toy", metric="accuracy", better="higher", key="accuracy"),
    ),
    deviations=deviations,
    rows={"gpvi_best": ("gpvi", "best")},
)


def redirect(monkeypatch, folder) -> None:
    """Sends records, figures and everything built into `folder`, in this process and in those it starts."""
    for name in ("results", "figures", "build"):
        monkeypatch.setenv(f"GPVI_{name.upper()}", str(folder / name))
    CALLS.clear()
