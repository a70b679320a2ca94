"""The run browser shows what readers read: damage as damage, nothing from outside, the same numbers."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import time
from pathlib import Path
from urllib.parse import quote, urlencode

import numpy as np
import pytest

pytest.importorskip("starlette")

from filelock import FileLock

from airfl import runs, sweeps
from airfl.errors import InputError
from airfl.runs.ledgers import MOST
from airfl.runs.lock import LOCK
from airfl.runs.manifest import Manifest
from airfl.web.app import Site, make_app
from airfl.web.export import Export
from airfl.web.guard import Door
from airfl.web.items import row_of
from airfl.web.library import Library
from airfl.web.limits import PAGE_ROWS
from airfl.web.rows import chosen, ordered, paged
from tests.fuzz import inprocess
from tests.web_client import PORT, client_of
from tests.web_folders import make_run, make_study_folder

SECRET = "root:x:0:0: nobody may read this"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run and a study, made once."""
    root = tmp_path_factory.mktemp("made")
    make_run(root / "a-run")
    make_study_folder(root / "a-study")
    return root


@pytest.fixture
def root(made, tmp_path):
    """A copy of them that may be damaged, with something beside it that nobody may read."""
    (tmp_path / "outside.txt").write_text(SECRET)
    shutil.copytree(made, tmp_path / "shown")
    return tmp_path / "shown"


@pytest.fixture
def client(root):
    library = Library(root, seconds=0.0)
    with client_of(make_app(root, Door(port=PORT), Site(library))) as found:
        yield found


def rows(client, **query):
    answer = client.ask(f"/api/rows?{urlencode(query)}")
    assert answer.status == 200, answer.text
    return answer.json()


def items(client):
    return {item["folder"]: item for item in rows(client)["items"]}


def view(client, *ids):
    answer = client.ask(f"/api/view?{urlencode([('row', one) for one in ids])}")
    assert answer.status == 200, answer.text
    return answer.json()["rows"]


# ------------------------------------------------------------------------------------------------ the same numbers


def test_rows_are_the_summaries(client, root):
    found = {row["id"]: row for row in rows(client)["rows"]}
    summary = runs.load(root / "a-run").summary
    for name, entry in summary["schemes"].items():
        row = found.pop(f"a-run:{name}")
        assert (row["accuracy"], row["accuracy_std"]) == (entry["accuracy_mean"], entry["accuracy_std"])
        assert (row["trials"], row["rounds"], row["status"]) == (entry["trials"], 3, "done")
        assert row["epsilon"] == entry["epsilon_by_observer"][entry["observer"]][entry["accountant"]]
    plan, folder = sweeps.find_plan(root / "a-study")
    study = sweeps.summarise(plan, folder)
    assert len(found) == len(study) == 8
    for row in study:
        same = [
            other for other in found.values()
            if other["scheme"] == row["scheme"] and other["settings"]["scheme.combiner"] == row["scheme.combiner"]
            and float(other["settings"]["channel.power_w"]) == row["channel.power_w"]
        ]  # fmt: skip
        assert len(same) == 1
        assert same[0]["accuracy"] == pytest.approx(row["accuracy_mean"], rel=1e-12)
        assert same[0]["accuracy_std"] == pytest.approx(row["accuracy_std"], rel=1e-9)
        assert same[0]["epsilon"] == row["epsilon_max"]
        assert same[0]["trials"] == row["trials"]


def test_a_row_in_full(client, root):
    """Curves are means and ranges of the records, ε by observer that of the ledgers."""
    result = runs.load(root / "a-run")
    (found,) = view(client, "a-run:airfl-dp")
    scheme = result.schemes["airfl-dp"]
    for name in ("accuracy", "epsilon", "noise_var", "train_loss"):
        column = scheme.column(name)
        assert found["curves"][name]["round"] == [1, 2, 3]
        assert np.allclose(found["curves"][name]["mean"], column.mean(axis=0), rtol=1e-12, atol=0)
        assert found["curves"][name]["low"] == column.min(axis=0).tolist()
        assert found["curves"][name]["high"] == column.max(axis=0).tolist()
    entry = result.summary["schemes"]["airfl-dp"]["epsilon_by_observer"]
    assert {seen["observer"] for seen in found["observers"]} == set(entry)
    for seen in found["observers"]:
        assert {a["name"]: a["epsilon"] for a in seen["accountants"]} == entry[seen["observer"]]
        assert all(a["assumptions"] and a["meaning"] for a in seen["accountants"])
    assert found["config"]["system.num_devices"] == "5"
    assert found["toml"] == result.config.to_toml()
    assert any("AirFL-DP" in sentence for sentence in found["sentences"])
    endless = view(client, "a-run:fedavg")[0]["curves"]["epsilon"]
    assert set(endless["mean"]) == {None}  # no finite ε, and JSON has no infinity


def test_a_configuration_of_a_study_in_full(client, root):
    plan, folder = sweeps.find_plan(root / "a-study")
    row = next(row for row in rows(client, q="a-study airfl-dp power_w=0.001 combiner=mrc")["rows"])
    (found,) = view(client, row["id"])
    columns = sweeps.summary.columns_of(plan, folder, "accuracy")[row["point"], "airfl-dp"]
    want = np.array([[value for _, value in trial] for trial in columns.values()])
    assert np.allclose(found["curves"]["accuracy"]["mean"], want.mean(axis=0), rtol=1e-12, atol=0)
    point, summary = next(
        pair for pair in sweeps.summary.summarise_points(plan, folder)
        if pair[0] == row["point"] and pair[1]["scheme"] == "airfl-dp"
    )  # fmt: skip
    assert {s["observer"]: {a["name"]: a["epsilon"] for a in s["accountants"]} for s in found["observers"]} == (
        summary["epsilon_by_observer"]
    )
    assert found["config"]["scheme.combiner"] == "mrc"
    assert found["toml"] == plan.config(point).to_toml()


def test_several_rows_and_wrong_ones(client):
    one, two = view(client, "a-run:fedavg", "a-study:0:airfl-dp")
    assert (one["row"]["id"], two["row"]["id"]) == ("a-run:fedavg", "a-study:0:airfl-dp")
    good, bad = view(client, "a-run:fedavg", "../../etc/passwd:x")
    assert "there is no row" in bad["problem"]
    assert good["row"]["scheme"] == "fedavg"
    assert client.ask("/api/view").status == 400
    assert client.ask("/api/view?" + "&".join(f"row=a{k}" for k in range(13))).status == 400


# ------------------------------------------------------------------------------------------------ filter, sort, pages


def many(count):
    draw = random.Random(7)
    return [
        row_of(
            f"f{k % 7}", "study", "big", draw.choice(["airfl-dp", "fedavg"]), "done", point=k,
            settings={"channel.power_w": 10.0 ** draw.randint(-9, -1), "scheme.combiner": draw.choice(["mrc", "auto"])},
            trials=draw.randint(0, 3), rounds=5, accuracy=draw.choice([None, draw.random()]),
            epsilon=draw.choice([None, 100 * draw.random()]),
        )
        for k in range(count)
    ]  # fmt: skip


def test_filters_say_what_they_mean():
    found = many(500)
    assert all(r["scheme"] == "fedavg" for r in chosen(found, "scheme=fedavg"))
    assert {r["folder"] for r in chosen(found, "", "f3")} == {"f3"}
    some = chosen(found, "airfl accuracy>50% power_w<=1e-6 combiner=MRC")
    assert 0 < len(some) < 500
    for row in found:
        want = (
            row["scheme"] == "airfl-dp" and row["accuracy"] is not None and row["accuracy"] > 0.5
            and float(row["settings"]["channel.power_w"]) <= 1e-6 and row["settings"]["scheme.combiner"] == "mrc"
        )  # fmt: skip
        assert (row in some) == want
    endless = chosen(found, "epsilon=∞")
    assert {row["epsilon"] for row in endless} == {None}
    assert all(row["trials"] for row in endless)
    assert chosen(found, "no=such") == chosen(found, "accuracy>much") == []


@pytest.mark.parametrize("by", ["accuracy", "-accuracy", "epsilon", "-power_w", "channel.power_w", "-combiner", "x"])
def test_sorting_keeps_all_rows_and_puts_what_is_missing_last(by):
    found = many(300)
    sorted_ = ordered(found, by)
    assert sorted(r["id"] for r in sorted_) == sorted(r["id"] for r in found)
    if by.lstrip("-") == "accuracy":
        values = [row["accuracy"] for row in sorted_]
        known = [value for value in values if value is not None]
        assert known == sorted(known, reverse=by.startswith("-"))
        assert values[len(known) :] == [None] * (len(values) - len(known))


def test_ten_thousand_rows_come_in_pages(client, monkeypatch):
    found = many(10_000)
    snapshot = client_snapshot(found)
    monkeypatch.setattr(Library, "look", lambda self, wait=0.0: snapshot)
    seen = []
    for number in (1, 2, 50, 100):
        page = rows(client, sort="-accuracy", page=number)
        assert (page["pages"], page["matching"], len(page["rows"])) == (100, 10_000, PAGE_ROWS)
        assert page["rows"] == list(paged(ordered(found, "-accuracy"), number)[0])
        seen += [row["id"] for row in page["rows"]]
    assert len(set(seen)) == 400
    assert rows(client, page=10**8)["page"] == 100
    few = client.ask("/api/rows?q=fedavg+accuracy%3E90%25")
    assert len(few.body) < 60_000
    again = client.ask("/api/rows?q=fedavg+accuracy%3E90%25", {"if-none-match": few.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    for wrong in ("-1", "x", "1e3", "²", "9" * 400, ""):
        assert client.ask(f"/api/rows?page={quote(wrong)}").status == 400


def client_snapshot(found):
    from airfl.web.items import Item
    from airfl.web.library import Snapshot

    return Snapshot("1", (Item("study", "big", Path(), "big", "done", rows=tuple(found)),))


# ------------------------------------------------------------------------------------------------ damage


def damage_byte(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


DAMAGE = {
    "a bit of the rounds": ("a-run", lambda f: damage_byte(f / "rounds.parquet")),
    "half a summary": ("a-run", lambda f: (f / "summary.json").write_text('{"schemes": {')),
    "no ledger": ("a-run", lambda f: (f / "ledger.json").unlink()),
    "a manifest of nonsense": ("a-run", lambda f: (f / "manifest.json").write_bytes(b"\xff\x00nonsense")),
    "a manifest that is a folder": ("a-run", lambda f: ((f / "manifest.json").unlink(), (f / "manifest.json").mkdir())),
    "no manifest, and a summary of other kinds": (
        "a-run", lambda f: ((f / "manifest.json").unlink(), (f / "summary.json").write_text('{"schemes": [1, {}]}')),
    ),
    "no manifest, and a summary nested too deep": (
        "a-run", lambda f: ((f / "manifest.json").unlink(), (f / "summary.json").write_text("[" * 100_000)),
    ),
    "no manifest, and a configuration of binary": (
        "a-run", lambda f: ((f / "manifest.json").unlink(), (f / "config.toml").write_bytes(os.urandom(999))),
    ),
    "a bit of a part": ("a-study", lambda f: damage_byte(sorted(f.glob("parts/*.parquet"))[0])),
    "half a receipt": ("a-study", lambda f: sorted(f.glob("parts/*00000.json"))[0].write_text('{"cells": [')),
    "a bit of the ledgers": ("a-study", lambda f: damage_byte(sorted(f.glob("parts/*.ledgers.json.gz"))[0])),
    "a plan of nonsense": ("a-study", lambda f: (f / "plan.json").write_text("[" * 100_000)),
    "a plan of another study": ("a-study", lambda f: (f / "plan.json").write_text('{"format": "airfl-study/2"}')),
    "another study's text": ("a-study", lambda f: (f / "study.toml").write_text("name = 'other'\n")),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_corrupted_folder_is_shown_as_damaged(client, root, kind):
    folder, hurt = DAMAGE[kind]
    before = rows(client)
    assert all(item["state"] == "done" for item in before["items"])
    first = view(client, "a-run:airfl-dp", "a-study:0:airfl-dp")
    assert not any("problem" in one for one in first)
    hurt(root / folder)
    found = items(client)
    assert found[folder]["state"] == "damaged", found[folder]
    assert found[folder]["message"]
    other = "a-study" if folder == "a-run" else "a-run"
    assert found[other]["state"] == "done"
    shown = view(client, "a-run:airfl-dp", "a-study:0:airfl-dp")  # the server stays up, the other row is there
    assert "problem" not in shown[0 if folder == "a-study" else 1]
    if folder == "a-run":
        assert "problem" in shown[0]


PIPES = ["a-run/summary.json", "a-run/manifest.json", "a-run/config.toml", "a-study/plan.json", "a-study/study.toml",
         "a-study/parts/batch-00000.json", "a-study/parts/batch-00001.parquet", "paper/claims.json"]  # fmt: skip


@pytest.mark.parametrize("name", PIPES)
def test_a_pipe_where_a_file_belongs_is_one_bad_row(root, tmp_path, name):
    """Nobody waits for it, and it costs the other folders nothing."""
    folder, place = name.partition("/")[0], root / name
    place.parent.mkdir(exist_ok=True)
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    with inprocess.limited(20):
        found = {item.folder: item for item in Library(root).look().items}
        Export(root, tmp_path / "out").write(lambda count: None)
    assert (found[folder].state, found[folder].rows) == ("refused", ())
    assert "is a pipe" in found[folder].message
    assert {item.state for item in found.values() if item.folder != folder} == {"done"}


def test_a_file_that_is_far_too_large_is_one_bad_row(client, root):
    os.truncate(root / "a-run" / "summary.json", MOST + 1)  # a hole, which takes no room
    assert items(client)["a-run"]["state"] == "refused"
    assert "far smaller" in items(client)["a-run"]["message"]
    assert items(client)["a-study"]["state"] == "done"


def test_a_name_that_is_no_text_is_one_bad_row(client, root, tmp_path):
    odd = os.fsdecode(b"caf\xe9")
    shutil.copytree(root / "a-run", root / odd / "deeper")
    (root / f"link-{odd}").symlink_to(root)
    found = items(client)
    assert found[r"caf\xe9/deeper"]["state"] == "refused"
    assert "rename it" in found[r"caf\xe9/deeper"]["message"]
    assert {found[name]["state"] for name in ("a-run", "a-study")} == {"done"}
    assert r"`./link-caf\xe9` is a link" in rows(client)["notes"][0]
    Export(root, tmp_path / "out").write(lambda count: None)
    assert r"caf\\xe9/deeper" in (tmp_path / "out" / "data" / "index.js").read_text()


@pytest.mark.parametrize("half", [r"\ud800", r"\udce9"])
def test_half_a_character_in_a_summary_costs_nobody_a_page(client, root, tmp_path, half):
    """JSON may spell it, and no address can have it."""
    (root / "a-run" / "manifest.json").unlink()
    summary = root / "a-run" / "summary.json"
    summary.write_text(summary.read_text().replace('"airfl-dp": {', f'"odd{half}": {{'))
    assert "a-run:odd?" in {row["id"] for row in rows(client)["rows"]}
    Export(root, tmp_path / "out").write(lambda count: None)
    assert "a-run:odd?" in (tmp_path / "out" / "data" / "index.js").read_text()


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.symlink_to("nowhere"), os.mkfifo])
def test_what_has_the_name_of_a_lock_and_is_none_is_nobody_at_work(client, root, make):
    make(root / "a-run" / LOCK)
    assert items(client)["a-run"]["state"] == "done"
    assert not rows(client)["live"]


def test_the_sound_part_of_a_damaged_study_is_shown(client, root):
    damage_byte(sorted((root / "a-study").glob("parts/*.parquet"))[0])
    found = rows(client, **{"in": "a-study"})
    assert 0 < sum(row["trials"] for row in found["rows"]) < 16
    assert [item["state"] for item in found["items"] if item["folder"] == "a-study"] == ["damaged"]


def test_a_folder_that_is_being_written(client, root):
    """Held by somebody it is being written; left like that it is damaged; finished it is there."""
    whole = (root / "a-run" / "manifest.json").read_text()
    (root / "a-run" / "manifest.json").write_text(
        Manifest({}, ("rounds.parquet", "summary.json", "config.toml")).text()
    )
    assert items(client)["a-run"]["state"] == "damaged"
    lock = FileLock(root / "a-run" / LOCK)
    with lock:
        assert items(client)["a-run"]["state"] == "writing"
        assert rows(client)["live"]
    (root / "a-run" / LOCK).unlink(missing_ok=True)
    (root / "a-run" / "manifest.json").write_text(whole)
    assert items(client)["a-run"]["state"] == "done"


def test_a_run_that_is_not_finished(client, root):
    folder = root / "begun"
    folder.mkdir()
    (folder / "resume.json").write_text("{}")
    assert items(client)["begun"]["state"] == "unfinished"
    assert "--resume begun" in items(client)["begun"]["message"]
    with FileLock(folder / LOCK):
        assert items(client)["begun"]["state"] == "running"


def test_a_sweep_at_work_moves(client, root, made):
    """Batches appear one after the other, and nothing is said to be damaged."""
    study, parts = root / "a-study", sorted((made / "a-study" / "parts").glob("*.json"))
    names = [path.stem for path in parts]
    shutil.rmtree(study / "parts")
    (study / "provenance.json").unlink()
    (study / "parts").mkdir()
    (study / "running").mkdir(exist_ok=True)
    with FileLock(study / LOCK):
        versions = []
        for count in range(len(names) + 1):
            if count:
                for path in (made / "a-study" / "parts").glob(f"{names[count - 1]}*"):
                    shutil.copy(path, study / "parts" / path.name)
                (study / "running" / f"{names[count - 1]}.json").unlink(missing_ok=True)
            if count < len(names):
                (study / "running" / f"{names[count]}.json").write_text('{"rounds": 1, "total": 2}')
                part = made / "a-study" / "parts" / f"{names[count]}.parquet"
                shutil.copy(part, study / "parts")  # a part without its receipt: just written
            found = rows(client)
            item = {item["folder"]: item for item in found["items"]}["a-study"]
            assert item["state"] == "running", item
            assert item["done"] == count * 16 // len(names)
            assert found["live"]
            versions.append(found["version"])
        assert len(set(versions)) == len(versions)
    assert items(client)["a-study"]["done"] == 16


def test_the_lock_of_somebody_who_begins_is_not_tried(root, monkeypatch):
    tried = []
    monkeypatch.setattr("airfl.web.library.is_locked", lambda folder: tried.append(folder))
    (root / "a-run" / LOCK).touch()
    assert Library(root).look().is_live
    assert not tried
    old = time.time() - 60
    os.utime(root / "a-run" / LOCK, (old, old))
    assert not Library(root).look().is_live
    assert tried


def test_nothing_is_written(client, root):
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(root.rglob("*"))}
    for address in ("/plan", "/runs", "/api/rows", "/api/view?row=a-run:airfl-dp", "/files/config.toml?in=a-run"):
        assert client.ask(address).status == 200, address
    assert before == {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(root.rglob("*"))}


# ------------------------------------------------------------------------------------------------ what lies outside


def everything(client):
    """All that anybody can ask for."""
    ids = [row["id"] for row in rows(client)["rows"]]
    answers = [client.ask("/api/rows"), client.ask("/runs"), client.ask("/plan")]
    answers += [client.ask(f"/api/view?{urlencode({'row': one})}") for one in ids]
    for folder in (*items(client), "linked", "..", ".", ""):
        for name in ("config.toml", "summary.json", "rounds.parquet", "study.toml", "plan.json", "outside.txt"):
            answers.append(client.ask(f"/files/{name}?{urlencode({'in': folder})}"))
    return b"".join(answer.body for answer in answers)


@pytest.mark.parametrize("name", ["config.toml", "summary.json", "provenance.json", "manifest.json", "report.html"])
@pytest.mark.parametrize("vouched", [True, False])
def test_a_link_to_a_file_outside_is_refused(client, root, name, vouched):
    if not vouched:
        (root / "a-run" / "manifest.json").unlink()
    target = root / "a-run" / name
    target.unlink(missing_ok=True)
    target.symlink_to(root.parent / "outside.txt")
    found = items(client)["a-run"]
    assert found["state"] == "refused"
    assert "leads out" in found["message"]
    assert SECRET.encode() not in everything(client)
    assert client.ask(f"/files/{name}?in=a-run").status == 404


@pytest.mark.parametrize("name", ["parts", "study.toml", "parts/batch-00000.json", "plan.json"])
def test_links_in_a_study_are_refused(client, root, name):
    outside, target = root.parent / "elsewhere", root / "a-study" / name
    outside.mkdir()
    moved = outside / target.name
    shutil.move(target, moved)
    target.symlink_to(moved)
    assert items(client)["a-study"]["state"] == "refused"
    target.unlink()
    shutil.move(moved, target)
    assert items(client)["a-study"]["state"] == "done"


def test_folders_behind_links_are_not_followed(client, root, made):
    (root / "linked").symlink_to(made / "a-run")
    (root / "round").symlink_to(root)
    found = rows(client)
    assert {item["folder"] for item in found["items"]} == {"a-run", "a-study"}
    assert any("`./linked`" in note for note in found["notes"])
    assert client.ask("/files/config.toml?in=linked").status == 404


@pytest.mark.parametrize(
    "address",
    ["/files/../../outside.txt?in=a-run", "/files/..%2f..%2foutside.txt?in=a-run", "/files/config.toml?in=../outside",
     "/files/outside.txt?in=..", "/files/outside.txt?in=a-run/../..", "/files/%2fetc%2fpasswd?in=a-run",
     "/files/config.toml?in=/etc", "/files/.airfl.lock?in=a-run", "/files/config.toml",
     "/files/config.toml%00?in=a-run", "/files/config.toml?in=a-run%00", "/files/plan.json?in=a-run",
     "/static/..%2fapp.py", "/static/%2e%2e/app.py",
     "/api/../files/config.toml", "/files/parts%2fbatch-00000.parquet?in=a-study"],
)  # fmt: skip
def test_traversal_finds_nothing(client, address):
    answer = client.ask(address)
    assert answer.status == 404, answer.text
    assert SECRET not in answer.text


def test_files_come_as_files(client, root):
    answer = client.ask("/files/config.toml?in=a-run")
    assert answer.body == (root / "a-run" / "config.toml").read_bytes()
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment;")
    assert "sandbox" in answer.headers["content-security-policy"]
    assert client.ask("/files/results.parquet?in=a-study").status == 200


def test_markup_in_names_stays_text(client, root):
    evil = "<script>window.hacked=1</script>"
    shutil.copytree(root / "a-run", root / f"a{evil.replace('/', chr(0x2215))}")
    (root / "claims").mkdir()
    (root / "claims" / "claims.json").write_text(json.dumps({evil: [{"sentence": evil, "verdict": "holds"}]}))
    found = rows(client)
    assert any("<script>" in item["folder"] for item in found["items"])
    for address in ("/runs", "/view?row=" + quote(evil), f"/plan?scenario={quote(evil)}", f"/runs?q={quote(evil)}"):
        assert "window.hacked" not in client.ask(address).text  # pages have none of it: scripts put it in as text
    answer = client.ask(f"/api/rows?q={quote(evil)}")
    assert answer.headers["content-type"] == "application/json"


def test_claims_of_a_reproduction(client, root):
    claims = {"authors": [{"sentence": "It holds.", "verdict": "holds", "found": "1", "caveat": None}]}
    (root / "paper").mkdir()
    (root / "paper" / "claims.json").write_text(json.dumps(claims))
    assert rows(client)["claims"]["paper"]["authors"][0]["verdict"] == "holds"
    (root / "paper" / "claims.json").write_text('{"authors": 3}')
    assert items(client)["paper"]["state"] == "damaged"


def test_a_server_without_runs_says_so():
    with client_of(make_app(None, Door(port=PORT), Site(None))) as client:
        for address in ("/runs", "/view", "/api/rows", "/api/view?row=a", "/files/config.toml?in=a"):
            answer = client.ask(address)
            assert answer.status == 404
            assert "--runs" in answer.text
        assert client.ask("/plan").status == 200
        assert 'href="runs"' not in client.ask("/plan").text


# ------------------------------------------------------------------------------------------------ many requests, export


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_two_thousand_requests_take_no_memory(root):
    with client_of(make_app(root, Door(port=PORT))) as client:
        _ask_two_thousand_times(client)


def _ask_two_thousand_times(client):
    addresses = ["/plan", "/runs", "/api/rows?q=airfl&sort=-accuracy", "/api/view?row=a-run:airfl-dp", "/nowhere",
                 "/static/plan.js", "/files/config.toml?in=a-run", "/api/view?row=a-study:1:airfl-mimo"]  # fmt: skip

    def load(first, last):
        for k in range(first, last):
            live = f"/api/plan?scenario=satellite-iot&power-dbm={k % 500 / 50:g}&live=1"
            address = live if k % 5 == 0 else addresses[k % len(addresses)]
            assert client.ask(address).status in (200, 404)

    load(0, 600)
    before = resident()
    load(600, 2000)
    assert resident() - before < 16 * 2**20


def test_an_export_has_all_of_it(root, tmp_path):
    export = Export(root, tmp_path / "out")
    done = []
    files = export.write(done.append)
    assert sum(done) == export.count == 10
    found = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert len(found) == files
    assert {"index.html", "view.html", "data/index.js", "data/part-00001.js", "static/airfl.css"} <= found
    assert not [name for name in found if "plan" in name or name.startswith(".")]
    text = (tmp_path / "out" / "data" / "index.js").read_text()
    index = json.loads(text.partition(" = ")[2].rstrip(";\n"))
    assert index["rows"][0].keys() >= {"id", "part", "accuracy"}
    assert "<" not in text
    assert math.isfinite(index["rows"][1]["epsilon"])
    for page in ("index.html", "view.html"):
        html = (tmp_path / "out" / page).read_text()
        assert "http" not in html.replace("http-equiv", "")
        assert 'href="/' not in html


def test_an_export_is_written_whole_or_not_at_all(root, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("all of it")
    with pytest.raises(InputError, match="not empty"):
        Export(root, tmp_path / "mine")
    with pytest.raises(InputError, match="outside"):
        Export(root, root / "export")
    monkeypatch.setattr("airfl.web.export.axes_of", lambda rows: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Export(root, tmp_path / "new" / "out").write(lambda count: None)
    assert not (tmp_path / "new").exists()
