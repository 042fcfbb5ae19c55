"""Keys: read from where they are kept, shown nowhere."""

import asyncio
import base64
import html
import json
import logging
import pickle
import random
import re
import shlex
import string
from urllib.parse import quote, quote_plus

import pytest

from drv_env.errors import SettingError, ToolError
from drv_env.play import run_call
from drv_env.protocol import Search, Visit
from drv_env.secrets import Keys, Secret, get_logger, mask, mask_data
from drv_env.tasks import Task
from drv_env.tools.base import Call
from drv_env.tools.live import JinaReader, LiveTools, PassageExtractor, Serper
from drv_env.tools.live.fetch import FetchReader
from drv_env.tools.live.summarise import Summariser

NAMES = {
    "SERPER_KEY_ID": "sk-serper-123456",
    "JINA_API_KEYS": "jina-one-123456, jina-two-123456,",
    "API_KEY": "sk-api-1234567",
    "API_BASE": "https://models.example/v1",
    "SUMMARY_MODEL_NAME": "small",
    "JUDGE_MODEL_NAME": "judge",
    "PROXY": "http://user:proxy-pass-word@proxy.example:8080",
}
VALUES = ["sk-serper-123456", "jina-one-123456", "jina-two-123456", "sk-api-1234567"]


def test_keys_are_read_under_the_releases_names():
    keys = Keys.from_env(NAMES, None)
    assert keys.serper.reveal() == "sk-serper-123456"
    assert [key.reveal() for key in keys.jina] == ["jina-one-123456", "jina-two-123456"]
    assert (keys.api_base, keys.summary_model) == ("https://models.example/v1", "small")
    assert (keys.judge_base, keys.judge_key) == (keys.api_base, keys.api_key)
    assert Keys.from_env({}, None) == Keys()


def test_a_key_is_not_sent_to_an_endpoint_it_was_not_given_for():
    keys = Keys.from_env({**NAMES, "JUDGE_API_BASE": "https://elsewhere.example/v1"}, None)
    assert keys.judge_base == "https://elsewhere.example/v1"
    assert keys.judge_key is None


def test_the_environment_wins_over_the_file(tmp_path):
    file = tmp_path / ".env"
    file.write_text(
        'SERPER_KEY_ID="from-the-file-1"\nAPI_KEY=also-from-file # why\nPROXY=${HOME}\n'
    )
    keys = Keys.from_env({"SERPER_KEY_ID": "from-the-environment"}, file)
    assert keys.serper.reveal() == "from-the-environment"
    assert keys.api_key.reveal() == "also-from-file"
    assert keys.proxy.reveal() == "${HOME}", "nothing is expanded"
    assert Keys.from_env({}, tmp_path / "absent") == Keys()


def test_a_secret_shows_itself_nowhere():
    secret = Secret("never-to-be-shown")
    assert "never" not in f"{secret} {secret!r} {secret:>30} {[secret]}"
    copy = pickle.loads(pickle.dumps(secret))
    assert copy == secret
    assert copy.reveal() == "never-to-be-shown"
    with pytest.raises(TypeError):
        json.dumps(secret)


def test_masking_finds_keys_in_every_form():
    Secret('od/d+k"ey=value')
    written = f"{'od/d+k%22ey=value'} od%2Fd%2Bk%22ey%3Dvalue " + json.dumps('od/d+k"ey=value')
    masked = mask('plain od/d+k"ey=value ' + written)
    assert masked == 'plain *** *** *** "***"'
    data = mask_data({"a": ['x od/d+k"ey=value'], "n": 3, "t": ("ok", None)})
    assert data == {"a": ["x ***"], "n": 3, "t": ("ok", None)}


def mangled(value):
    """A key as it may stand in a text, by the name of who writes it so."""
    data = value.encode()
    dumped = json.dumps(value)
    odd = {sign for sign in value if not (sign.isascii() and sign.isalnum())}

    def each(form):
        return "".join(form(sign) if sign in odd else sign for sign in value)

    return {
        "plain": value,
        "quote": quote(value, safe=""),
        "quote of a path": quote(value),
        "quote_plus": quote_plus(value),
        "quoted twice": quote(quote(value, safe=""), safe=""),
        "every sign quoted": each(lambda s: "".join(f"%{b:02x}" for b in s.encode())),
        "JSON": dumped,
        "JSON in UTF-8": json.dumps(value, ensure_ascii=False),
        "JSON in JSON": json.dumps(dumped),
        "JSON with \\/": dumped.replace("/", "\\/"),
        "JSON in HTML": html.escape(dumped),
        "a url in JSON": json.dumps("https://a.org/?k=" + quote(value, safe="")),
        "HTML": html.escape(value),
        "HTML's text": html.escape(value, quote=False),
        "HTML twice": html.escape(html.escape(value)),
        "HTML's numbers": each(lambda s: f"&#{ord(s)};"),
        "HTML's other numbers": each(lambda s: f"&#x{ord(s):04X};"),
        "a shell": shlex.quote(value),
        "a shell's backslashes": each(lambda s: "\\" + s),
        "Python": repr(value),
        "Python in ASCII": ascii(value),
        "Python's bytes": repr(data),
        "base64": base64.b64encode(data).decode(),
        "base64 for urls": base64.urlsafe_b64encode(data).decode(),
        "base64 of user and password": base64.b64encode(b"user:" + data).decode(),
        "base64 of a user alone": base64.b64encode(data + b":").decode(),
        "base64 of more": base64.b64encode(b"us:" + data + b"x").decode(),
        "base64 in a url": quote(base64.b64encode(b"u:" + data).decode(), safe=""),
        "base64 in JSON": base64.b64encode(b"u:" + data).decode().replace("/", "\\/"),
    }


def test_made_up_keys_are_found_in_every_form(monkeypatch):
    monkeypatch.setattr("drv_env.secrets._known", ())  # and forgotten afterwards
    monkeypatch.setattr("drv_env.secrets._forms", ())
    rng = random.Random(11)
    signs = string.ascii_letters + string.digits + "-_.~/+=&\"'<>\\%:;@ $#?!{}[]`^|*(),"
    tried = 0
    for number in range(60):
        more = "é北😀" if number % 3 == 0 else ""
        value = "x" + "".join(rng.choice(signs + more) for _ in range(rng.randint(8, 40))) + "y"
        Secret(value)
        parts = re.findall("[A-Za-z0-9]{4,}", value)
        for writer, form in mangled(value).items():
            masked = mask(f"before {form} after")
            assert "***" in masked, (writer, value)
            assert not any(part in masked for part in parts), (writer, value)
            if writer.startswith("base64"):
                kept = masked.removeprefix("before ").removesuffix(" after").replace("***", "")
                assert len(kept) <= 12, (writer, value, masked)
            tried += 1
    assert tried == 60 * 29


def test_masking_leaves_other_texts_alone():
    Secret("sk-live-1/2+3=4")
    for text in ("sk-live-1/2+3=5", "sk live", "", "%2F", "\\" * 1_000, "sk-live-" * 100):
        assert mask(text) == text


def test_short_words_that_stand_for_no_key_are_not_masked():
    Secret("EMPTY")
    assert mask("the EMPTY set") == "the EMPTY set"


def test_logs_are_masked(caplog):
    Secret("a-key-in-the-log")
    logger = get_logger("drv_env.test_secrets")
    assert get_logger("drv_env.test_secrets").filters == logger.filters
    with caplog.at_level(logging.WARNING):
        logger.warning("refused: %s", "a-key-in-the-log")
    assert caplog.messages == ["refused: ***"]


def test_tools_from_the_environment_hide_their_keys():
    tools = LiveTools.from_env(NAMES, None)
    kinds = [type(part) for part in (tools._search, tools._reader, tools._digester)]
    assert kinds == [Serper, JinaReader, Summariser]
    seen = [tools, *vars(tools).values()]
    shown = " ".join(repr(vars(item)) for item in seen if hasattr(item, "__dict__")) + repr(tools)
    assert not [value for value in (*VALUES, "proxy-pass-word") if value in shown]
    copy = pickle.loads(pickle.dumps(tools))
    assert copy._search._key == tools._search._key
    assert not [value for value in VALUES if value in repr(vars(copy))]
    asyncio.run(tools.close())


def test_everything_but_search_works_without_keys():
    tools = LiveTools.from_env({"SERPER_KEY_ID": "sk-serper-123456"}, None)
    kinds = [type(part) for part in (tools._reader, tools._digester)]
    assert kinds == [FetchReader, PassageExtractor]
    with pytest.raises(SettingError, match="SERPER_KEY_ID is not set"):
        LiveTools.from_env({}, None)
    assert [schema.name for schema in LiveTools(reader=FetchReader()).schemas] == ["visit"]


@pytest.mark.parametrize("action", ["search", "visit"])
def test_a_key_that_the_web_sends_back_is_masked(action):
    secret = Secret("key-that-comes-back")

    class Echo:
        async def search(self, query):
            if "fail" in query:
                raise ToolError(f"bad key {secret.reveal()}", kind="unauthorised")
            from drv_env.tools.live import Found

            return Found([{"title": "t", "url": "https://a.org", "snippet": secret.reveal()}])

        async def read(self, url):
            from drv_env.tools.live import ReadPage

            if "fail" in url:
                raise ValueError(f"bad key {secret.reveal()}")
            return ReadPage(url, "", f"The founder is {secret.reveal()}.")

        async def close(self):
            pass

    async def main():
        tools = LiveTools(Echo(), Echo())
        shown = []
        for word in ("x", "fail", secret.reveal()):
            asked = Search((word,)) if action == "search" else Visit((word,), "founder")
            result = await run_call(tools, Call(asked, Task("Q?", ("A",))), 10)
            shown.append(repr(result) + result.text + json.dumps(result.data))
        return shown

    for shown in asyncio.run(main()):
        assert secret.reveal() not in shown
        assert "***" in shown
