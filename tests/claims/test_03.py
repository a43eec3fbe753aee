"""What notebook 03 says of its records: time and memory of a direction and of a step."""

from of_records import arrays, values


def at(name, key, dim):
    """A number of one back end at a dimension, the largest if ``dim`` is None."""
    (found,) = arrays("inverse-cost", name)
    where = -1 if dim is None else (found["dim"] == dim).nonzero()[0, 0]
    return float(found[key][where])


def test_a_dense_direction_takes_ten_times_as_long_at_a_thousand_dimensions():
    assert at("dense", "direction_ms", 1_000) > 10 * at("block", "direction_ms", 1_000)


def test_the_helper_needs_ten_times_the_memory_of_the_block_solution_at_the_largest_size():
    assert at("helper", "bytes", None) > 10 * at("block", "bytes", None)


def test_a_step_of_the_block_solution_lies_between_the_exact_density_and_the_iterative_ones():
    names = ("helper", "bicgstab", "block", "exact_density", "amortized_svgd")
    step = {name: at(name, "step_ms", None) for name in names}
    assert min(step["helper"], step["bicgstab"]) > 3 * step["block"]
    assert 1.5 * step["exact_density"] < step["block"] < 2 * step["amortized_svgd"]


def test_in_a_whole_step_the_helper_multiplies_the_time_and_the_block_solution_adds_about_a_third():
    def extra(setting):
        return [values("overhead", f"gpvi_{name}{setting}", "extra_time_fraction")[0] for name in ("mnist", "cifar10")]

    assert min(extra("")) > 3 and max(extra("_best")) < 0.45


def test_from_sixty_thousand_weights_up_a_whole_step_takes_1_2_to_1_4_times_one_of_amortised_svgd():
    for kind in ("extra_time_fraction", "extra_time_fraction_independent"):
        extra = [values("overhead", f"gpvi_{name}_best", kind)[0] for name in ("mnist", "cifar10")]
        assert 0.15 < min(extra) and max(extra) < 0.45
