"""What the paper prints of how its tables and figures were trained: how long, on how much data, with how many samples.

One entry for each item of the scoreboard that training fills, and for figures that have no numbers there. An
experiment's scores find theirs by the item's name; what the paper leaves open is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from gpvi_lib.lab.experiment import Score

NOISE_SCALE = 1.0
"""λ "throughout our experiments" (section 3.2)."""
RUNS = 3
"""Every number is the mean of so many (appendix E)."""
HMC_PROPOSALS = 25_000
"""Burn-in included, for linear regression and for classification in the plane (appendix E)."""
LINE_STEPS = 50_000  # appendix E
REGRESSION_STEPS = 50_000  # Table 7
ENERGY_STEPS = 200_000  # Table 6
CLASSIFICATION_STEPS = 500_000  # Table 8
MNIST_EPOCHS = 100  # Table 9
CIFAR10_EPOCHS = 200  # Table 10
IMAGE_GENERATORS = {
    "mnist": {"noise_dim": 256, "hidden": [256, 512, 1_024]},
    "cifar10": {"noise_dim": 400, "hidden": [400, 600, 1_000]},
}
"""Of Tables 9 and 10."""
WILD_MASTERS = [1e-6 * 2**j for j in range(30)]
"""Wild VI's candidates for constant and master step sizes."""
WILD_POWER: dict[str, list] = {"log_scale": list(range(-6, 3)), "offset": list(range(10)), "exponent": [0.55]}
"""Its candidates for step sizes that fall with a power."""


@dataclass(frozen=True)
class Printed:
    """What is printed for one table or figure; None for what is not.

    Attributes:
        source: where it is printed.
        length: of training, in ``unit``.
        unit: "steps", "epochs" or, of a bandit, "rounds".
        batch: data a step.
        samples: of the approximate posterior, a step.
        other_lengths: published method -> its length, where it has one of its own; HMC's are proposals.
    """

    source: str
    length: int | None = None
    unit: Literal["steps", "epochs", "rounds"] = "steps"
    batch: int | None = None
    samples: int | None = None
    other_lengths: Mapping[str, int | None] = field(default_factory=dict)

    def length_of(self, method: str) -> int | None:
        """The length that is printed for a published method."""
        return self.other_lengths.get(method, self.length)


HMC = {"hmc": HMC_PROPOSALS}
DENSITY = Printed("section 4.1 and appendix E")
REGRESSION = Printed("Table 7", REGRESSION_STEPS, batch=10, samples=100, other_lengths=HMC)
ENERGY = Printed("Table 6, whose minibatch is of samples", ENERGY_STEPS, samples=100)
CLASSIFICATION = Printed("Table 8", CLASSIFICATION_STEPS, batch=100, samples=100, other_lengths=HMC)
FUNCTIONS = Printed("appendix B.2.1 of function-space POVI", unit="epochs", samples=20, other_lengths={"hmc": None})
FUNCTIONS_SMALL = replace(FUNCTIONS, length=500, batch=100)
FUNCTIONS_LARGE = replace(FUNCTIONS, length=3_000, batch=1_000)
FUNCTIONS_TOY = Printed("section 5.1 of function-space POVI", samples=50)
BANDITS = Printed("appendix B.4 of function-space POVI", 50_000, "rounds")
LIVI_TOY = Printed("appendix E.7 of LIVI", 5_000)
LIVI_UCI = Printed("appendix E.4 of LIVI")
LIVI_MNIST = Printed(
    "batch, samples in appendix E.5 of LIVI, epochs the released script's default", 100, "epochs", batch=256, samples=2
)
LIVI_CIFAR10 = Printed(
    "batch, samples in appendix E.6 of LIVI, epochs in section 6.5", 200, "epochs", batch=256, samples=2
)
WILD = Printed("section 5 of Wild VI")
FUNCTIONS_TABLES = ("table4", "table5", "table6", "table7", "table8")
PRINTED: dict[str, Printed] = {
    "gpvi/figure1": Printed("appendix E", LINE_STEPS, samples=100, other_lengths={"hmc": None}),
    **{f"gpvi/{table}/{dim}d": DENSITY for table in ("table1", "table5") for dim in (2, 5)},
    "gpvi/table2": REGRESSION,
    "gpvi/figure3": replace(REGRESSION, source="appendix C, as Table 7"),
    **{f"gpvi/figure{number}": ENERGY for number in (4, 5, 6, 7)},
    **{f"gpvi/figure{number}": CLASSIFICATION for number in (2, 8, 9)},
    "gpvi/table3/mnist": Printed("Table 9", MNIST_EPOCHS, "epochs", batch=50, samples=10),
    "gpvi/table4/cifar10": Printed("Table 10", CIFAR10_EPOCHS, "epochs", batch=50, samples=10),
    **{f"fpovi/figure1/{region}": FUNCTIONS_TOY for region in ("data", "gap", "near", "far")},
    "fpovi/figure5": FUNCTIONS_TOY,
    "fpovi/figure9": Printed("appendix D of function-space POVI", 20_000, samples=1_000),
    **{f"fpovi/table3/{name}": BANDITS for name in ("mushroom", "wheel")},
    "fpovi/table2/mnist": Printed("section 5.2.2 of function-space POVI", 1_000, "epochs", batch=100),
    "fpovi/table9/mnist": Printed("appendix B.3 of function-space POVI", 1_000, "epochs", batch=1_000, samples=20),
    **{
        f"fpovi/{table}/{name}": entry
        for entry, names in (
            (FUNCTIONS_SMALL, ("boston", "energy", "yacht")),
            (FUNCTIONS_LARGE, ("concrete", "kin8nm", "naval", "power", "protein", "winered")),
        )
        for table in FUNCTIONS_TABLES
        for name in names
    },
    "livi/figure1": LIVI_TOY,
    "livi/figureF.4": Printed("appendix F.5 of LIVI"),
    **{f"livi/table1/{name}": LIVI_UCI for name in ("boston", "concrete", "energy", "kin8nm", "naval")},
    "livi/table2/mnist_ood": LIVI_MNIST,
    "livi/table2/cifar10_ood": LIVI_CIFAR10,
    "wild-vi/figure2": WILD,
    "wild-vi/figure3": WILD,
}


def printed_steps(score: Score, method: str) -> int | None:
    """The steps of training (proposals, of a chain) that are printed for a published method; None if none are."""
    printed = PRINTED.get(score.item)
    length = None if printed is None else printed.length_of(method)
    return None if length is None else length * score.epoch
