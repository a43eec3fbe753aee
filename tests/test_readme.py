"""README is one screen, its first part is a cover, and its code and that of the pages runs."""

import re
import tomllib

import pytest
import torch

import gpvi_lib
from gpvi_lib import FlatModule, check, load_sampler
from gpvi_lib.paths import repository

TEXT = (repository() / "README.md").read_text()
OWN_MODEL = (repository() / "docs" / "your-own-model.md").read_text()


def test_readme_stays_short():
    assert len(TEXT.splitlines()) <= 150 and len(TEXT.split()) < 1_500


def test_the_first_screen_has_four_doors():
    cover = TEXT.partition("<!-- The cover of the web book ends here")[0]
    assert cover != TEXT
    doors = re.findall(r"^\| \*\*([\w ]+)\*\*", cover, re.MULTILINE)
    assert doors == ["read", "reproduce", "use it", "contribute"]
    assert "(CHANGELOG.md)" in cover and "(CONTRIBUTING.md)" in cover
    assert cover.index("**contribute**") < cover.index("## What we found")


def test_every_page_of_the_book_is_named():
    pages = {path.name for path in (repository() / "docs").glob("*.md")}
    assert not [name for name in pages if f"(docs/{name})" not in TEXT]


def test_the_last_release_of_the_changelog_is_the_version():
    read = {name: (repository() / name).read_text() for name in ("CHANGELOG.md", "pyproject.toml", "CITATION.cff")}
    version = tomllib.loads(read["pyproject.toml"])["project"]["version"]
    releases = re.findall(r"^## (\d+\.\d+\.\d+) - \d{4}-\d\d-\d\d$", read["CHANGELOG.md"], re.MULTILINE)
    assert releases[0] == version == gpvi_lib.__version__ and f"\nversion: {version}\n" in read["CITATION.cff"]
    assert read["CHANGELOG.md"].index("## Unreleased") < read["CHANGELOG.md"].index(f"## {version}")


def run_snippet(text, heading, monkeypatch, folder, *changes, after=()):
    """The names that the Python code below a heading defines, run in `folder` with few steps, after other code."""
    code = re.search(rf"## {re.escape(heading)}\n.*?```python\n(.*?)```", text, re.DOTALL)[1]
    for old, new in changes:
        assert code.count(old) == 1
        code = code.replace(old, new)
    monkeypatch.chdir(folder)
    names = dict(after)
    exec(code, names)
    return names


FEW = ("steps=2_000", "steps=20")
SHORT_CHAINS = ("num_steps=1_500, burn_in=500", "num_steps=60, burn_in=40")


def test_the_snippet_for_a_density_runs(monkeypatch, tmp_path):
    names = run_snippet(TEXT, "Use it", monkeypatch, tmp_path, FEW)
    assert names["samples"].shape == (1_000, 20) and names["samples"].isfinite().all()


def test_the_snippet_for_a_density_of_your_own_runs(monkeypatch, tmp_path):
    """In full, for the page says that `check` trusts it: by a wide margin, of seeds and processors."""
    names = run_snippet(OWN_MODEL, "A density", monkeypatch, tmp_path)
    assert names["sampler"].sample(9, seed=0).shape == (9, 5)
    report = check(names["sampler"], names["Mine"](), seed=0, progress=False)
    assert report.verdict == "trust" and report["weights"].value > 1_900


def test_the_snippet_for_an_unknown_scale_runs(monkeypatch, tmp_path):
    names = run_snippet(OWN_MODEL, "A density", monkeypatch, tmp_path, FEW)
    names = run_snippet(OWN_MODEL, "A scale that you do not know", monkeypatch, tmp_path, FEW, after=names)
    assert names["x"].shape == (1_000, 5) and names["x"].isfinite().all()
    torch.testing.assert_close(names["units"].scale, names["draws"].std(0))


def test_the_snippets_for_named_parameters_predict(monkeypatch, tmp_path):
    names = run_snippet(OWN_MODEL, "Named and constrained parameters", monkeypatch, tmp_path)
    heading = "Predictions are the likelihood's"
    text = OWN_MODEL.replace(heading, f"## A\n{heading}")
    names = run_snippet(text, "A", monkeypatch, tmp_path, after=names)
    assert (names["low"] <= names["high"]).all() and names["log_likelihood"].shape == (5,)
    assert names["chains"].apart and (names["log_likelihood"] < 0).all()


def test_the_snippet_for_nuts_runs(monkeypatch, tmp_path):
    heading = "NUTS comes from Pyro"
    names = run_snippet(OWN_MODEL, "HMC first, for a small problem", monkeypatch, tmp_path, SHORT_CHAINS)
    fewer = ("num_samples=1_000, warmup_steps=500", "num_samples=10, warmup_steps=5, disable_progbar=True")
    text = OWN_MODEL.replace(heading, f"## A\n{heading}")
    names = run_snippet(text, "A", monkeypatch, tmp_path, fewer, after=names)
    assert names["draws"].shape == (10, 20)


def test_a_receiver_predicts_without_the_training_data(monkeypatch, tmp_path):
    """As the page says under "Later, elsewhere"."""
    names = run_snippet(OWN_MODEL, "A model: any torch module", monkeypatch, tmp_path, FEW)
    code = re.search(r"`(NormalLikelihood\(\)\.predictive\(.*?\))` predicts", OWN_MODEL, re.DOTALL)[1]
    names |= {"x_new": names["x_test"], "FlatModule": FlatModule}
    found = eval(code, names)
    torch.testing.assert_close(found.mean * names["factor"] + names["shift"], names["predictive"].mean.float())


def test_the_snippet_for_hmc_runs(monkeypatch, tmp_path):
    names = run_snippet(OWN_MODEL, "HMC first, for a small problem", monkeypatch, tmp_path, SHORT_CHAINS)
    assert names["draws"].shape == (20, 16, 20) and names["draws"].isfinite().all()


def test_the_snippets_for_chains_of_a_network_and_an_ensemble_run(monkeypatch, tmp_path):
    shorter = ("num_steps=1_500, burn_in=500", "num_steps=30, burn_in=10")
    heading = r"The posterior of a small network takes"
    names = run_snippet(OWN_MODEL.replace(heading, f"## A\n{heading}"), "A", monkeypatch, tmp_path, shorter)
    assert names["chains"].samples.shape == (20, 4, 122) and names["predictive"].mean.isfinite().all()
    names = run_snippet(OWN_MODEL, "An ensemble, to predict with", monkeypatch, tmp_path, ("1_000", "30"), after=names)
    assert names["ensemble"].x.shape == (10, 122) and names["predictive"].mean.shape == (len(names["x_test"]),)


def test_the_snippets_for_function_space_and_a_latent_generator_run(monkeypatch, tmp_path):
    names = run_snippet(OWN_MODEL, "A model: any torch module", monkeypatch, tmp_path, FEW)
    names = run_snippet(OWN_MODEL, "An ensemble, to predict with", monkeypatch, tmp_path, ("1_000", "30"), after=names)
    heading = "In function space, and with a latent generator"
    names = run_snippet(OWN_MODEL, heading, monkeypatch, tmp_path, after=names)
    assert names["functions"].x.shape == (20, names["posterior"].dim) and names["predictive"].mean.isfinite().all()
    text = OWN_MODEL.replace("**LIVI** trains", "## A\n**LIVI** trains")
    names = run_snippet(text, "A", monkeypatch, tmp_path, after=names)
    assert names["latent"].sample(3, seed=0).shape == (3, names["posterior"].dim)


def test_the_snippet_for_a_likelihood_of_your_own_predicts_counts(monkeypatch, tmp_path):
    names = run_snippet(OWN_MODEL, "A likelihood of your own", monkeypatch, tmp_path)
    x, posterior = names["x"], names["posterior"]
    predictive = posterior.predictive(names["ensemble"].x.detach(), x)
    rates = (0.5 + x[:, 0]).exp()
    torch.testing.assert_close(names["predictive"].mean, predictive.mean[:5])
    assert names["low"].shape == (5,) and bool((names["low"] <= names["high"]).all())
    assert (predictive.mean / rates - 1).abs().median() < 0.3  # 300 counts, ten networks


def test_a_thousand_steps_are_too_many_for_an_ensemble_of_the_first_example(monkeypatch, tmp_path):
    names = run_snippet(OWN_MODEL, "A model: any torch module", monkeypatch, tmp_path, FEW)
    names = run_snippet(OWN_MODEL, "An ensemble, to predict with", monkeypatch, tmp_path, after=names)
    low, high = names["predictive"].interval(0.9)
    targets = names["raw"].test_targets
    assert ((targets >= low) & (targets <= high)).double().mean() < 0.85 and len(targets) == 45
    assert "their 90 % intervals hold under 85 % of the 45 test patients (one split)" in " ".join(OWN_MODEL.split())


def test_the_snippet_for_a_table_of_your_own_runs(monkeypatch, tmp_path):
    heading = "Standardise inputs and targets, as here"
    fitted = run_snippet(OWN_MODEL, "A model: any torch module", monkeypatch, tmp_path, FEW)
    names = run_snippet(OWN_MODEL.replace(heading, f"## A\n{heading}"), "A", monkeypatch, tmp_path, after=fitted)
    assert names["low"].shape == (3,) and (names["low"] < names["high"]).all()
    assert len(names["predictive"].mean) == len(names["raw"].test_targets)  # as the line on calibration takes it
    mean, sd = names["own"].inputs.mean(0), names["own"].inputs.std(0, correction=0)
    expected = (torch.tensor(names["new"].to_numpy()) - mean) / sd
    torch.testing.assert_close(names["x_new"], expected.float())


def test_the_snippet_for_a_model_runs_and_its_file_brings_the_sampler_back(monkeypatch, tmp_path):
    names = run_snippet(OWN_MODEL, "A model: any torch module", monkeypatch, tmp_path, FEW)
    predictive, low, high = names["predictive"], names["low"], names["high"]
    assert low.shape == (len(names["x_test"]),) and (low < predictive.mean).all() and (predictive.mean < high).all()
    held = predictive.cdf(high) - predictive.cdf(low)
    torch.testing.assert_close(held, torch.full_like(held, 0.9), rtol=0, atol=1e-4)  # bisected in float32
    assert predictive.stddev.shape == predictive.log_prob(names["data"].test_targets.float()).shape == low.shape
    again = load_sampler(tmp_path / "posterior.safetensors")
    drawn = [sampler.sample(3, torch.Generator().manual_seed(1)) for sampler in (again, names["sampler"])]
    assert torch.equal(*drawn)


def test_the_snippets_for_the_priors_scale_and_for_a_gpu_run(monkeypatch, tmp_path):
    shorter = ("steps=300", "steps=30")
    names = run_snippet(OWN_MODEL, "Which scale for the prior?", monkeypatch, tmp_path, shorter)
    assert list(names["found"]) == [0.3, 1.0, 3.0] and names["found"][names["best"]] == max(names["found"].values())
    again = run_snippet(OWN_MODEL, "On a GPU", monkeypatch, tmp_path, after=names)
    assert again["sampler"].sample(2, seed=0).device.type == again["device"]


def test_the_snippet_for_mean_field_runs(monkeypatch, tmp_path):
    names = run_snippet(OWN_MODEL, "A model: any torch module", monkeypatch, tmp_path, FEW)
    text = OWN_MODEL.replace("This sampler is for predictions", "## A\nThis sampler is for predictions")
    names = run_snippet(text, "A", monkeypatch, tmp_path, ("steps=4_000", "steps=20"), after=names)
    assert names["field"].sample(3, seed=0).shape == (3, names["posterior"].dim)


@pytest.mark.parametrize("text", [TEXT, OWN_MODEL], ids=["README", "your-own-model"])
def test_code_is_not_cut_off_in_the_book(text):
    lines = [line for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    assert lines and max(map(len, lines)) <= 96  # columns of a window of 1,400
