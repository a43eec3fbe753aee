"""Settings that a page calls chosen are the best of the recorded candidates."""

import pytest
from of_records import runs

from gpvi_lib.experiments import livi_uci


def livi_uci_scores(row: str) -> dict[str, float]:
    """Change -> mean log-likelihood of the points put aside, over the sets of the search."""
    scores = {}
    for candidate, (of, change) in livi_uci.CANDIDATES.items():
        if of == row:
            (record,) = runs("livi-uci-settings", candidate)
            scores[change] = sum(record.metrics[f"{name}_log_likelihood"] for name in livi_uci.VALIDATED) / 2
    return scores


@pytest.mark.parametrize("row", livi_uci.STARTS)
def test_the_change_that_livi_takes_on_uci_is_the_best_by_data_put_aside(row):
    scores = livi_uci_scores(row)
    assert scores.keys() == livi_uci.CHANGES[row].keys()
    assert max(scores, key=scores.__getitem__) == livi_uci.CHOSEN[row]
