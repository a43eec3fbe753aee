"""The three sizes at which everything runs: `smoke`, `quick` and `paper`."""

from __future__ import annotations

from dataclasses import dataclass

from gpvi_lib.errors import UnknownName


@dataclass(frozen=True)
class Profile:
    """One size of every experiment.

    Args:
        name: `smoke`, `quick` or `paper`; the folder of its records and figures.
        purpose: one sentence on what it is for.
        reuse: whether a valid record is loaded instead of computed again.
    """

    name: str
    purpose: str
    reuse: bool


PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile("smoke", "tests: the same code on tiny sizes, trained from nothing", reuse=False),
        Profile("quick", "a fresh machine: small sizes and embedded data, trained from nothing", reuse=False),
        Profile("paper", "the sizes of the committed results; valid records are reused", reuse=True),
    )
}


def get_profile(name: str | Profile) -> Profile:
    """The profile called `name` (a `Profile` is returned as it is).

    Raises:
        UnknownName: if there is none of that name; the message lists the valid ones.
    """
    if isinstance(name, Profile):
        return name
    if name not in PROFILES:
        raise UnknownName.among("profile", name, PROFILES)
    return PROFILES[name]
