"""`airfl serve` on the command line: what it prints, what it refuses, and that other commands do not load it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

pytest.importorskip("starlette")

from tests.web_folders import make_run


def fetch(address, **headers):
    """Status and text; only this machine is asked."""
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_serving_and_stopping(tmp_path):
    command = [sys.executable, "-m", "airfl.cli", "serve", "--port", "0", "--token", "--json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            said = json.loads(process.stdout.readline())
            assert said.keys() == {"url", "host", "port", "token", "runs"}
            assert (said["host"], said["runs"]) == ("127.0.0.1", None)
            assert said["url"] == f"http://127.0.0.1:{said['port']}/plan?token={said['token']}"
            plan = f"http://127.0.0.1:{said['port']}/api/plan?scenario=satellite-iot"
            assert fetch(plan)[0] == 401
            assert fetch(plan, Host="elsewhere.example")[0] == 403
            assert fetch(said["url"])[0] == 200
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert "Traceback" not in process.stderr.read()


def test_an_export_on_the_command_line(call, tmp_path):
    make_run(tmp_path / "shown" / "one")
    code, out, err = call("serve", "--runs", "shown", "--export", "out", "--json")
    assert code == 0, err
    said = json.loads(out.splitlines()[-1])
    assert said["folder"] == "out"
    assert said["rows"] == 2
    assert said["files"] == sum(path.is_file() for path in (tmp_path / "out").rglob("*"))
    code, _, err = call("serve", "--runs", "shown", "--export", "out")
    assert code == 2
    assert "not empty" in err
    code, out, _ = call("serve", "--runs", "shown", "--export", "more")
    assert code == 0
    assert out.rstrip().endswith("more/index.html")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--runs", "nowhere"], "there is no folder `nowhere`"),
        (["--export", "out"], "--export needs --runs"),
        (["--port", "70000"], "from 0 to 65535"),
        (["--port", "-1"], "from 0 to 65535"),
        (["--host", "not-a-host.invalid"], "cannot listen"),
        (["--host", "198.51.100.7"], "cannot listen"),
    ],
)
def test_wrong_words(call, words, why):
    code, out, err = call("serve", *words)
    assert (code, out) == (2, "")
    assert why in err
    assert len(err.splitlines()) == 1


def test_without_the_extra_it_says_what_to_install(call, monkeypatch):
    monkeypatch.setattr("airfl.web.find_spec", lambda name: None)
    code, _, err = call("serve")
    assert code == 2
    assert 'pip install "airfl[web]"' in err


def test_other_commands_load_none_of_it():
    code = (
        "import sys; sys.argv = ['airfl', 'presets']\n"
        "from airfl import cli\n"
        "try:\n    cli.main()\nexcept SystemExit:\n    pass\n"
        "print(*[name for name in ('starlette', 'uvicorn', 'airfl.web', 'anyio') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""
