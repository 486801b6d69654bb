"""A page holds what its reader may see, and nothing else: read from the file's text."""

import re
import sys

import pytest

from rofl import report
from rofl.cli import main
from rofl.errors import UserError
from rofl.report.thumbnails import thumbnails
from rofl.training.records import SiteRecord
from rofl.training.run_dir import RunDir
from tests.report.reading import Page
from tests.report.synthetic import CLASSES, CLIENTS, data_of, make


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Some samples are named like other clients' only by chance: every name has its client in it."""
    return make(tmp_path_factory.mktemp("made") / "run")


def secrets(made, client):
    """Everything of a client that only its own page may hold."""
    rows = made.federated.parts[CLIENTS.index(client)].tolist()
    pictures = thumbnails(made.federated.images.train, rows).pictures
    return [made.federated.images.ids[row] for row in rows], pictures


def held(page, texts):
    return sum(text in page for text in texts)


def test_everything_is_of_all_clients(made, tmp_path):
    page = made.write(tmp_path / "page.html").read_text()
    for client in CLIENTS:
        names, pictures = secrets(made, client)
        assert held(page, names) >= 40
        assert held(page, pictures) == 40
    assert "This page shows samples of all clients" in Page(page).text


@pytest.mark.parametrize("client", CLIENTS)
def test_a_sites_page_holds_its_own_samples_only(made, tmp_path, client):
    page = made.write(tmp_path / "page.html", site=client).read_text()
    names, pictures = secrets(made, client)
    assert held(page, names) >= 40
    assert held(page, pictures) == 40
    for other in set(CLIENTS) - {client}:
        assert other not in page
        names, pictures = secrets(made, other)
        assert held(page, names) == held(page, pictures) == 0
    data = data_of(page)
    assert data["clients"] == [client]
    assert data["file"] == f"decisions-{client}.csv"
    assert f"This page shows samples of {client}, and of no other client" in Page(page).text
    assert f"rofl report for {client}" in Page(page).text


def test_a_sites_picture_of_features_is_of_its_own_samples(made, tmp_path):
    page = made.write(tmp_path / "page.html", site="Northfield").read_text()
    rows = set(made.federated.parts[0].tolist())
    kept = RunDir(made.folder).audit.read_features().rows.tolist()
    own = sum(row in rows for row in kept)
    assert f"Features of {own} samples" in page
    assert 10 < own < len(kept)


def test_the_servers_page_holds_no_sample(made, tmp_path):
    page = made.write(tmp_path / "page.html", server=True).read_text()
    for client in CLIENTS:
        names, pictures = secrets(made, client)
        assert held(page, names) == held(page, pictures) == 0
        assert f"{client} 60 40 (66.7 %)" in Page(page).text
    assert not Page(page).all("img")
    assert "Feature map" not in page
    assert not re.search(r"<script[^>]*json", page)
    text = Page(page).text
    assert "Label noise between classes" in text
    assert "This page holds no picture and no sample's name or features, only counts for each client." in text


def test_a_page_is_named_by_its_reader(tmp_path):
    names = ("a/b", "a?b", "server")
    made = make(tmp_path / "run", clients=names, each=5)
    assert made.write().name == "report.html"
    assert made.write(server=True).name == "report-server.html"
    written = {name: made.write(site=name).name for name in names}
    assert written == {"a/b": "report-a_b.html", "a?b": "report-a_b-2.html", "server": "report-server-2.html"}
    assert {path.parent for path in tmp_path.rglob("report*.html")} == {made.folder}


def test_an_unknown_site_is_told_the_near_one(made, tmp_path):
    with pytest.raises(UserError, match=r"There is no site 'northfeld'. Try: 'Northfield' \(there are: "):
        made.write(tmp_path / "page.html", site="northfeld")
    assert not (tmp_path / "page.html").exists()


def test_a_view_is_of_one_reader():
    with pytest.raises(ValueError, match="a site or for the server"):
        report.Audience(site="Northfield", server=True)


@pytest.fixture
def command(monkeypatch, capsys):
    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["rofl", "report", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        said = capsys.readouterr()
        return stop.value.code or 0, said.out.strip(), " ".join(said.err.split())

    return call


def test_the_command_takes_a_site_or_the_server(runs, copied, command):
    folder = copied("rofl")
    rows = RunDir(folder).audit.read_suspects()
    client = rows[0].client  # has the most suspicious sample
    page = folder / f"report-{client}.html"
    assert command(folder, "--site", client) == (0, str(page), "")
    assert command(folder, "--server") == (0, str(folder / "report-server.html"), "")
    assert set(data_of(page.read_text())["sample"]) <= {row.sample for row in rows if row.client == client}
    code, _, said = command(folder, "--site", client, "--server")
    assert (code, "--site and --server exclude each other" in said) == (2, True)
    code, _, said = command(folder, "--site", 7)
    assert (code, "There is no site '7'" in said) == (2, True)


def test_the_coordinators_page_is_named_after_the_run_with_true_facts(tmp_path):
    """What a coordinator negotiates names no data set, and says nothing about noise or who has which samples."""
    pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")
    from rofl.federation.negotiate import negotiate
    from rofl.federation.site_info import SiteInfo

    made = make(tmp_path / "lungs-2026")
    folder = RunDir(made.folder)
    sites = [SiteInfo(number, name, 60, 8, 1, CLASSES) for number, name in enumerate(CLIENTS)]
    folder.write_experiment(negotiate(sites, {}))
    known = {site.name: SiteRecord(samples=site.samples) for site in sites}
    folder.write_summary(folder.read_summary().model_copy(update={"sites": known}))
    page = Page(made.write(server=True).read_text()).text
    assert "lungs-2026 Sites Northfield, Southgate, Westbury Sites per round 3 Rounds" in page
    assert "Noise not known Partition by client, as in the data" in page
    assert "accuracy on held-out labels as given" in page
    assert "own with" not in page


def test_the_page_of_a_site_does_not_call_it_a_federation_of_one(tmp_path):
    made = make(tmp_path / "run")
    folder = RunDir(made.folder)
    experiment = folder.read_experiment()
    spec = experiment.data.model_copy(update={"name": "own", "path": "/scans", "client_name": "Northfield"})
    folder.write_experiment(experiment.model_copy(update={"data": spec, "clients": 1, "cohort": 1}))
    page = Page(made.write().read_text()).text
    assert "Site Northfield Rounds 40 Noise" in page
    assert "per round 1" not in page
    assert "Partition" not in page
