"""Keys: read from where they are kept, shown nowhere."""

import asyncio
import json
import logging
import pickle

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
    assert masked.count("***") == 3
    data = mask_data({"a": ['x od/d+k"ey=value'], "n": 3, "t": ("ok", None)})
    assert data == {"a": ["x ***"], "n": 3, "t": ("ok", None)}


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
