"""All directions that are made of a kernel, so that tests of what they share need no list of their own."""

from gpvi_lib.directions import SteinCritic
from gpvi_lib.experiments.build import DIRECTIONS

KERNEL_DIRECTIONS = [direction for direction in DIRECTIONS.values() if direction is not SteinCritic]
