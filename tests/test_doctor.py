"""The doctor: what is there, what shadows it, which keys are set."""

import asyncio
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiohttp import web

from drv_env import background
from trainers.cli import main
from trainers.commands.doctor import examine

NAMES = ("SERPER_KEY_ID", "JINA_API_KEYS", "API_BASE", "API_KEY", "SUMMARY_MODEL_NAME")
NAMES += ("JUDGE_MODEL_NAME", "JUDGE_API_BASE", "JUDGE_API_KEY", "PROXY")

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def found(**arguments):
    return {finding.subject: finding for finding in examine(**arguments)}


@contextmanager
def endpoint(status: int):
    """A real server whose /v1/models answers with ``status`` and remembers the key."""
    seen: list[str | None] = []

    async def models(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.json_response({"data": []}, status=status)

    async def start() -> tuple[web.AppRunner, int]:
        app = web.Application()
        app.router.add_get("/v1/models", models)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return runner, runner.addresses[0][1]

    runner, port = background.run(start())
    try:
        yield f"http://127.0.0.1:{port}/v1", seen
    finally:
        background.run(runner.cleanup())


def test_what_is_installed_is_ok_and_options_are_only_missing():
    findings = found()
    assert findings["gymnasium"].state == findings["torch"].state == "ok"
    assert {finding.state for finding in findings.values()} <= {"ok", "missing"}
    assert findings["agents"].state == "ok"


def test_keys_are_named_and_never_shown(monkeypatch, capsys):
    monkeypatch.setenv("SERPER_KEY_ID", "super-secret-serper-key")
    assert found()["SERPER_KEY_ID"].state == "ok"
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "SERPER_KEY_ID" in shown
    assert "super-secret" not in shown


def test_a_package_of_the_same_name_is_found_and_named(tmp_path):
    other = tmp_path / "other" / "agents.py"
    other.parent.mkdir()
    other.write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "trainers.cli", "doctor"],
        env={**os.environ, "PYTHONPATH": f"{other.parent}{os.pathsep}{ROOT}", "COLUMNS": "300"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    line = next(line for line in done.stdout.splitlines() if str(other) in line)
    assert "broken" in line
    assert "uninstall or rename" in line


def test_a_file_beside_a_script_is_seen(tmp_path, monkeypatch):
    (tmp_path / "replay.py").write_text("")
    (tmp_path / "trainers").mkdir()
    assert {each.subject for each in examine() if each.state == "broken"} == {"replay.py"}
    (tmp_path / "trainers" / "__init__.py").write_text("")
    broken = {each.subject: each for each in examine() if each.state == "broken"}
    assert set(broken) == {"replay.py", "trainers/__init__.py"}
    assert "rename it" in broken["replay.py"].remedy
    monkeypatch.chdir(ROOT)  # ours is not beside itself
    assert not {each.subject for each in examine() if each.state == "broken"}


@pytest.mark.parametrize(("status", "state"), [(200, "ok"), (401, "broken"), (404, "broken")])
def test_an_endpoint_is_asked(monkeypatch, status, state):
    with endpoint(status) as (base, seen):
        monkeypatch.setenv("API_BASE", base)
        monkeypatch.setenv("API_KEY", "key-of-the-endpoint")
        findings = found(endpoints=True)
    assert findings["endpoint of the summariser"].state == state
    assert set(seen) == {"Bearer key-of-the-endpoint"}
    if status == 401:
        assert findings["endpoint of the summariser"].remedy == "check the key"


def test_an_endpoint_that_is_not_there_is_broken(monkeypatch):
    async def free_port() -> int:
        server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        return port

    monkeypatch.setenv("JUDGE_API_BASE", f"http://127.0.0.1:{background.run(free_port())}/v1")
    finding = found(endpoints=True)["endpoint of the judge"]
    assert finding.state == "broken"
    assert "check the address" in finding.remedy


def test_the_architectures_that_work_are_named_as_they_are_tested():
    from trainers.architectures import FULL_ATTENTION, NOT_PACKED, OTHER_ATTENTION

    findings = found()
    rows = [finding for subject, finding in findings.items() if subject.startswith("models")]
    named = [name for row in rows for name in row.detail.split(", ")]
    assert sorted(named) == sorted([*FULL_ATTENTION, *NOT_PACKED, *OTHER_ATTENTION])
    assert len(set(named)) == len(named)


def test_everything_that_an_extra_brings_and_every_key_is_looked_at(monkeypatch):
    from trainers.extras import PACKAGES

    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    findings = found()
    assert {name for names in PACKAGES.values() for name in names} <= set(findings)
    assert {"peft", "pydantic", "yaml"} <= set(findings)
    for name in ("API_KEY", "JUDGE_API_KEY", "PROXY"):
        assert findings[name].state == "missing"
        assert "set it in the environment or in .env" in findings[name].remedy
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:3128")
    other = found()["https_proxy"]
    assert other.state == "missing"
    assert "PROXY" in other.remedy
    monkeypatch.setenv("PROXY", "http://user:pass-word-4@127.0.0.1:3128")
    findings = found()
    assert findings["PROXY"].state == findings["https_proxy"].state == "ok"
    assert "pass-word" not in str(list(findings.values()))
