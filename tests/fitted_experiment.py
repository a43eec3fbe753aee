"""A training of a second or so that saves a checkpoint at every step; for tests of runs that are killed."""

import time

import torch

from gpvi_lib import SVGD, Adam, Gaussian, Particles, ParVI, fit
from gpvi_lib.lab.experiment import Experiment, Outcome


def config(method, profile):
    return {"steps": 60, "pause": {"slow": 0.02, "fast": 0.0}[method]}


def seeds(profile):
    return (0, 1)


def run(config, method, context):
    rng = torch.Generator().manual_seed(context.seed)
    particles = Particles(torch.randn(5, 2, generator=rng))
    fit(
        particles,
        Gaussian(torch.zeros(2), torch.eye(2)),
        ParVI(SVGD()),
        steps=config["steps"],
        optimizer=Adam(lr=0.1),
        rng=rng,
        callback=lambda step, sampler: time.sleep(config["pause"]),
        callback_every=1,
        checkpoint=context.checkpoint,
        checkpoint_seconds=0.0,
        label=context.label,
        progress=context.progress,
    )
    return Outcome({"first": float(particles.x.detach()[0, 0])}, {"x": particles.x.detach()})


FITTED = Experiment("fitted", "A training that can be killed", ("slow", "fast"), config, seeds, run)
