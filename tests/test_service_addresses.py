"""Credentials in addresses: refused with a word why, and shown and stored nowhere."""

import asyncio
import json

import pytest

from agents.engines.openai_chat import OpenAIChatEngine
from agents.engines.openai_ids import OpenAIServerEngine
from drv_env.chat import ChatClient
from drv_env.errors import SettingError, ToolError
from drv_env.http import HttpClient
from drv_env.rewards.judge import Judge
from drv_env.secrets import Keys, mask, remember_credentials
from drv_env.service_address import service_address
from drv_env.tools.live import FetchReader, JinaReader, LiveTools, Serper
from trainers.cli import main
from trainers.commands.doctor import examine

WITH_CREDENTIALS = [
    "http://user:pass-word-1@host:8000/v1",
    "https://pass-word-1@host/v1",
    "HTTP://:pass-word-1@host/v1",
    "http://user:pass-word-1%2F@host/v1",
    "http://user:pass-word-1/x@host/v1",
    "http://user:pass-word-1#x@host/v1",
    "user:pass-word-1@host/v1",
    " http://user:pass-word-1@host/v1/ ",
    "http://a@b:pass-word-1@host/v1",
    "ftp://user:pass-word-1@host/v1",
    "http://host/v1?key=pass-word-1",
    "http://host/v1?pass-word-1",
    "http://host/v1#pass-word-1",
    "http://host/v1;token=pass-word-1",
    "http://user%3Apass-word-1%40host/v1",
    "http://user%3apass-word-1%40host:80/v1",
    "http://user:pass-word-1\uff20host/v1",
    "http://user:pass-word-1\ufe6bhost/v1",
    "http://host/v1%3Fkey=pass-word-1",
    "http://host/v1\uff1fkey=pass-word-1",
    "http://host/v1%3Bpass-word-1",
]
NONE = [
    "",
    "host:8000/v1",
    "ftp://host/v1",
    "http://",
    "http:///v1",
    "http://[::1",
    "http://a b/v1",
]


def takers(address):
    """Everything that takes a service's address, as a function that gives it."""
    dotenv = {"SERPER_KEY_ID": "a-serper-key", "SUMMARY_MODEL_NAME": "m", "JUDGE_MODEL_NAME": "m"}
    return {
        "service_address": lambda: service_address(address),
        "ChatClient": lambda: ChatClient(address, "m"),
        "OpenAIChatEngine": lambda: OpenAIChatEngine(address, "m"),
        "OpenAIServerEngine": lambda: OpenAIServerEngine(address, "m"),
        "Serper": lambda: Serper("a-serper-key", endpoint=address),
        "JinaReader": lambda: JinaReader(endpoint=address),
        "API_BASE": lambda: LiveTools.from_env({**dotenv, "API_BASE": address}, None),
        "JUDGE_API_BASE": lambda: Judge.from_env({**dotenv, "JUDGE_API_BASE": address}, None),
        "JUDGE_API_BASE with tools": lambda: Keys.from_env({"JUDGE_API_BASE": address}, None),
    }


@pytest.mark.parametrize("address", WITH_CREDENTIALS)
def test_credentials_are_refused_wherever_an_address_is_taken(address):
    for taker, take in takers(address).items():
        with pytest.raises(SettingError) as caught:
            take()
        said = str(caught.value)
        assert "pass-word-1" not in said, taker
        assert "addresses are shown and stored" in said, taker
        assert "key" in said, taker
    assert "pass-word-1" not in mask(f"later: {address}")


@pytest.mark.parametrize("address", NONE)
def test_what_is_no_address_is_refused(address):
    with pytest.raises(SettingError, match=r"base_url must be an http\(s\) url"):
        service_address(address)


@pytest.mark.parametrize(
    ("address", "kept"),
    [
        ("http://localhost:8000/v1/", "http://localhost:8000/v1"),
        (" https://HOST/v1 ", "https://HOST/v1"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        ("http://bücher.example/v1", "http://bücher.example/v1"),
    ],
)
def test_other_addresses_are_kept(address, kept):
    assert service_address(address) == kept
    assert ChatClient(address, "m").base_url == kept


@pytest.mark.parametrize("command", ["rollout", "eval", "ask"])
@pytest.mark.parametrize("engine", ["openai", "openai-ids"])
def test_commands_refuse_them_before_anything_is_written(tmp_path, capsys, command, engine):
    file, out = tmp_path / "tasks.jsonl", tmp_path / "out"
    file.write_text(json.dumps({"question": "Who?", "answer": "Ada"}) + "\n")
    arguments = {
        "rollout": ["rollout", str(file), "--out", str(out)],
        "eval": ["eval", str(file)],
        "ask": ["ask", "Who?"],
    }[command]
    address = "http://user:pass-word-2@127.0.0.1:9/v1"
    options = ["--engine", engine, "--base-url", address, "--tokenizer", str(tmp_path)]
    assert main([*arguments, "--model", "m", "--world", "3", *options]) == 1
    shown = capsys.readouterr()
    assert "pass-word-2" not in shown.out + shown.err
    assert "--base-url http://***@127.0.0.1:9/v1 holds a user or password" in shown.err
    assert "--api-key-env" in shown.err
    assert "Traceback" not in shown.err
    assert not out.exists()


def test_a_key_in_place_of_its_variables_name_is_not_shown(capsys):
    options = ["--base-url", "http://127.0.0.1:9/v1", "--api-key-env", "sk-this-is-the-key"]
    assert main(["ask", "Who?", "--model", "m", "--world", "3", *options]) == 1
    shown = capsys.readouterr()
    assert "sk-this-is-the-key" not in shown.out + shown.err
    assert "--api-key-env takes the name of a variable" in shown.err


def test_doctor_tells_of_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("API_BASE=http://user:pass-word-3@host/v1\n")
    for name in ("API_BASE", "JUDGE_API_BASE"):
        monkeypatch.delenv(name, raising=False)
    findings = list(examine(True))
    assert "pass-word-3" not in repr(findings)
    [found] = [finding for finding in findings if finding.subject == "keys"]
    assert found.state == "broken"
    assert "put the key into API_KEY" in found.detail


def test_a_proxy_may_have_credentials_and_shows_them_nowhere():
    address = "http://some-user:pass%2Fword-4@127.0.0.1:1"
    reader = FetchReader(proxy=address, timeout=5)
    http = HttpClient(proxy=address, timeout=5)

    async def ask():
        try:
            await http.request("GET", "http://example.org/")
        finally:
            await http.close()

    with pytest.raises(ToolError) as caught:  # nobody listens there
        asyncio.run(ask())
    packed = "c29tZS11c2VyOnBhc3Mvd29yZC00"  # some-user:pass/word-4 in base64
    told = f"{reader!r} {vars(reader)!r} {vars(http)!r} {caught.value!r}"
    logged = mask(f"{told} pass/word-4 pass%2Fword-4 Proxy-Authorization: Basic {packed}")
    assert "word-4" not in logged
    assert packed not in logged
    assert "word-4" not in told


def test_what_an_address_holds_besides_an_address_is_known_from_then_on():
    shown = remember_credentials("https://some-one:a+secret%2Bword@host/v1?x=1&token=to%20ken-9#z")
    assert shown == "https://***@host/v1?***"
    masked = mask(
        "a+secret+word, a+secret%2Bword, to ken-9, to%20ken-9, to+ken-9, a&#43;secret+word"
    )
    assert masked == "***, ***, ***, ***, ***, ***"


@pytest.mark.parametrize(
    "words",
    [
        ["eval", "q.jsonl", "--model", "http://me:typed-in-place-1@host/x"],
        ["data", "clean", "http://me:typed-in-place-1@host/x", "--out", "y"],
        ["cassette", "stats", "https://me:typed-in-place-1@host/x"],
    ],
)
def test_an_address_where_a_path_belongs_shows_no_password_either(
    tmp_path, monkeypatch, capsys, words
):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 1
    said = capsys.readouterr()
    assert "***@host/x" in said.err
    assert "typed-in" not in said.err + said.out
