"""What `make check` leaves out, and what `make test` begins with."""

SLOW = (
    *(
        "test_activations_experiment",
        "test_bayesian_linear_settings",
        "test_benchmarks",
        "test_book",
        "test_classification",
        "test_classifier",
    ),
    *("test_cli", "test_covertype", "test_descent", "test_energy_experiment", "test_environment", "test_executors"),
    *("test_fpovi_bandits", "test_fpovi_exact", "test_fpovi_images", "test_fpovi_toy", "test_fpovi_uci"),
    *(
        "test_gaussian_density",
        "test_inverse_experiments",
        "test_lab",
        "test_livi_entropy",
        "test_livi_images",
        "test_livi_problem",
    ),
    *("test_livi_toy", "test_livi_uci", "test_notebook_mutations", "test_notebooks", "test_notebooks_infra"),
    *("test_nuts_reference", "test_one_dimensional_regression", "test_open_category", "test_open_category_report"),
    *(
        "test_overhead",
        "test_interrupts",
        "test_provenance",
        "test_queue",
        "test_records",
        "test_scoreboard",
        "test_smooth_experiment",
    ),
    *("test_uci_regression", "test_wild_logistic", "test_wild_mixture", "test_wild_mutations"),
)
"""Files that run experiments, notebooks or the command line: `make check` leaves them out."""

LONGEST = ("test_notebooks", "test_notebook_mutations", "test_book")
"""Files of minutes: `make test` begins with them, then come notebooks and slow files, and last the quick ones."""
