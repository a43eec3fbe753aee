"""The same work by other libraries: SVGD and HMC on Bayesian logistic regression, each at its own best.

Breast cancer data of scikit-learn (569 patients, 30 features, real), weights and bias with a standard normal prior,
all data in every step, float32. JAX's libraries are compiled, and many steps are one compiled loop.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import torch
from torch import Tensor

from gpvi_lib import SVGD, Particles, ParVI, hmc
from gpvi_lib.fitting import Training
from gpvi_lib.optimizers import Adam

PARTICLES = 100
LEAPFROG, STEP_SIZE, LEARNING_RATE = 10, 0.02, 1e-3
INNER = 50
"""Steps in one timed call: a compiled loop is only at its best if it runs for a while."""
NEEDED = ("blackjax", "numpyro", "pyro")


class LogisticRegression:
    """``y_i ~ Bernoulli(sigmoid(x_i · w))``, ``w ~ N(0, I)``; the last input is 1."""

    num_data = None

    def __init__(self, inputs: Tensor, labels: Tensor) -> None:
        self.inputs, self.signs = inputs, 2 * labels - 1
        self.dim = inputs.shape[1]

    def log_prob(self, w: Tensor, batch: Tensor | None = None) -> Tensor:
        """``(n, d) -> (n,)``, up to a constant."""
        margins = (w @ self.inputs.mT) * self.signs
        return torch.nn.functional.logsigmoid(margins).sum(-1) - 0.5 * w.square().sum(-1)


def problem() -> tuple[Tensor, Tensor]:
    """Standardised inputs with a column of ones, ``(569, 31)``, and labels 0 or 1, in float32."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    inputs = torch.as_tensor(data.data)
    inputs = (inputs - inputs.mean(0)) / inputs.std(0)
    return torch.cat([inputs, torch.ones(len(inputs), 1)], 1).float(), torch.as_tensor(data.target).float()


def missing() -> list[str]:
    """Peers that are not installed."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


def _times(call: Callable[[], object]) -> Callable[[], None]:
    def many() -> None:
        for _ in range(INNER):
            call()

    return many


def our_svgd(inputs: Tensor, labels: Tensor) -> Callable[[], object]:
    """INNER steps of ours."""
    rng = torch.Generator().manual_seed(0)
    particles = Particles(torch.randn(PARTICLES, inputs.shape[1], generator=rng))
    return _times(
        Training(
            particles, LogisticRegression(inputs, labels), ParVI(SVGD()), rng=rng, optimizer=Adam(lr=LEARNING_RATE)
        ).advance
    )


def our_hmc(inputs: Tensor, labels: Tensor) -> Callable[[], object]:
    """INNER proposals of ours."""
    target, rng = LogisticRegression(inputs, labels), torch.Generator().manual_seed(0)
    initial = torch.zeros(PARTICLES, target.dim)
    settings = {"step_size": STEP_SIZE, "num_leapfrog": LEAPFROG, "num_steps": INNER, "burn_in": INNER - 1}
    return lambda: hmc(target.log_prob, initial, **settings, rng=rng, progress=False)


def pyro_svgd(inputs: Tensor, labels: Tensor) -> Callable[[], object]:
    """INNER steps of Pyro's."""
    import pyro
    from pyro.infer import SVGD as PyroSVGD
    from pyro.infer import RBFSteinKernel

    pyro.clear_param_store()
    prior = pyro.distributions.Normal(torch.zeros(inputs.shape[1]), 1.0).to_event(1)

    def model() -> None:
        w = pyro.sample("w", prior)
        logits = w @ inputs.mT
        pyro.sample("y", pyro.distributions.Bernoulli(logits=logits).to_event(1), obs=labels)

    optimizer = pyro.optim.Adam({"lr": LEARNING_RATE})
    svgd = PyroSVGD(model, RBFSteinKernel(), optimizer, PARTICLES, max_plate_nesting=0, mode="multivariate")
    return _times(svgd.step)


def _jax_log_prob(inputs: Tensor, labels: Tensor):
    import jax
    import jax.numpy as jnp

    x, signs = jnp.asarray(inputs.numpy()), jnp.asarray(2 * labels.numpy() - 1)
    return lambda w: jax.nn.log_sigmoid((x @ w) * signs).sum() - 0.5 * (w**2).sum()


def blackjax_svgd(inputs: Tensor, labels: Tensor) -> Callable[[], object]:
    """INNER compiled steps of BlackJAX's."""
    import blackjax
    import jax
    import optax

    algorithm = blackjax.svgd(jax.grad(_jax_log_prob(inputs, labels)), optax.adam(LEARNING_RATE))
    start = algorithm.init(jax.random.normal(jax.random.key(0), (PARTICLES, inputs.shape[1])))
    steps = jax.jit(lambda state: jax.lax.fori_loop(0, INNER, lambda _, s: algorithm.step(s), state))
    return lambda: jax.block_until_ready(steps(start))


def numpyro_svgd(inputs: Tensor, labels: Tensor) -> Callable[[], object]:
    """INNER compiled steps of NumPyro's SteinVI."""
    import jax
    import jax.numpy as jnp
    import numpyro
    from numpyro.contrib.einstein import SVGD as NumPyroSVGD
    from numpyro.contrib.einstein import RBFKernel

    x, y = jnp.asarray(inputs.numpy()), jnp.asarray(labels.numpy())

    def model() -> None:
        w = numpyro.sample("w", numpyro.distributions.Normal(jnp.zeros(x.shape[1]), 1.0).to_event(1))
        numpyro.sample("y", numpyro.distributions.Bernoulli(logits=x @ w).to_event(1), obs=y)

    optimizer = numpyro.optim.Adam(LEARNING_RATE)
    svgd = NumPyroSVGD(model, optimizer, RBFKernel(), num_stein_particles=PARTICLES)
    start = svgd.init(jax.random.key(0))
    steps = jax.jit(lambda state: jax.lax.fori_loop(0, INNER, lambda _, s: svgd.update(s)[0], state))
    return lambda: jax.block_until_ready(steps(start))


def blackjax_hmc(inputs: Tensor, labels: Tensor) -> Callable[[], object]:
    """INNER compiled proposals of BlackJAX's for all chains."""
    import blackjax
    import jax
    import jax.numpy as jnp

    dim = inputs.shape[1]
    kernel = blackjax.hmc(_jax_log_prob(inputs, labels), STEP_SIZE, jnp.ones(dim), LEAPFROG)
    start = jax.vmap(kernel.init)(jnp.zeros((PARTICLES, dim)))

    def advance(_: int, carry: tuple) -> tuple:
        key, state = carry
        key, used = jax.random.split(key)
        return key, jax.vmap(kernel.step)(jax.random.split(used, PARTICLES), state)[0]

    steps = jax.jit(lambda state: jax.lax.fori_loop(0, INNER, advance, (jax.random.key(0), state)))
    return lambda: jax.block_until_ready(steps(start))


def numpyro_hmc(inputs: Tensor, labels: Tensor) -> Callable[[], object]:
    """INNER compiled proposals of NumPyro's for all chains, without adaptation."""
    import jax
    import jax.numpy as jnp
    from numpyro.infer import HMC

    log_prob, dim = _jax_log_prob(inputs, labels), inputs.shape[1]
    kernel = HMC(
        potential_fn=lambda w: -log_prob(w),
        step_size=STEP_SIZE,
        num_steps=LEAPFROG,
        adapt_step_size=False,
        adapt_mass_matrix=False,
    )
    keys = jax.random.split(jax.random.key(0), PARTICLES)
    kernel.init(keys[0], 0, jnp.zeros(dim), (), {})  # outside of vmap once: it fixes the kernel's own constants
    start = jax.vmap(lambda key, w: kernel.init(key, 0, w, (), {}))(keys, jnp.zeros((PARTICLES, dim)))
    advance = jax.vmap(lambda state: kernel.sample(state, (), {}))
    steps = jax.jit(lambda state: jax.lax.fori_loop(0, INNER, lambda _, s: advance(s), state))
    return lambda: jax.block_until_ready(steps(start))


WORK = {
    "SVGD": {"gpvi_lib": our_svgd, "Pyro": pyro_svgd, "BlackJAX": blackjax_svgd, "NumPyro": numpyro_svgd},
    "HMC": {"gpvi_lib": our_hmc, "BlackJAX": blackjax_hmc, "NumPyro": numpyro_hmc},
}
"""Kind of work -> library -> what builds one call of it."""
