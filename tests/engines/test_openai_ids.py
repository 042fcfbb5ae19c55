"""The token engine on a server, against the same model in this process.

The server is real and speaks the route as vLLM does; its ids and log-probs are a real
engine's.  The same comparison with vLLM itself is in tests/cluster.
"""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from agents.engines import Engine, Sampling
from agents.engines.openai_ids import OpenAIServerEngine
from agents.engines.transformers import TransformersEngine
from drv_env.errors import EngineError, SettingError
from drv_env.retry import RetryPolicy
from tests.engines.servers import CompletionServer, Waits

pytestmark = pytest.mark.usefixtures("one_thread")
PROMPT = np.arange(5, 25)
NINE = Sampling(9)


@pytest.fixture
def remote(model, template):
    """Runs ``scenario(engine, own, server)`` with all three, and closes them."""

    def run(scenario, *, name="tiny", context=64, settings=None, **speaking):
        async def main():
            own = TransformersEngine(model, 8, max_context=context, pieces=template.pieces)
            try:
                async with CompletionServer(own, model, **speaking) as server:
                    retry = RetryPolicy(attempts=3, sleep=Waits(), random=lambda: 1.0)
                    chosen = {"retry": retry} | (settings or {})
                    engine = OpenAIServerEngine(server.url, name, "key-for-tests", **chosen)
                    try:
                        return await scenario(engine, own, server)
                    finally:
                        await engine.close()
                        await engine.close()
            finally:
                await own.close()

        return asyncio.run(main())

    return run


# ---- ids and log-probs ----------------------------------------------------------------


def test_completions_are_the_models_own_to_the_id(remote, template):
    async def scenario(engine, own, server):
        assert isinstance(engine, Engine)
        free = await own.generate(PROMPT, Sampling(20, seed=2))
        text = next(
            text
            for text in (template.pieces.decode([id_]) for id_ in free.ids[4:])
            if text.strip("\ufffd")
        )
        for sampling in (
            Sampling(20, temperature=0),
            Sampling(20, seed=1, temperature=0.7, top_k=5, top_p=0.8, presence_penalty=1.2),
            Sampling(20, seed=2),
            Sampling(20, seed=2, stop=(text,)),
            Sampling(20, seed=2, stop_ids=(int(free.ids[5]),)),
        ):
            here, there = (
                await own.generate(PROMPT, sampling),
                await engine.generate(PROMPT, sampling),
            )
            assert there.ids.tolist() == here.ids.tolist()
            assert there.ids.dtype == np.int32
            np.testing.assert_array_equal(there.log_probs, here.log_probs)
            assert there.log_probs.dtype == np.float32
            assert (there.finish, there.weight_version) == (here.finish, 0)

    remote(scenario)


def test_every_setting_is_sent_whatever_the_servers_defaults(remote):
    async def scenario(engine, own, server):
        await engine.generate(PROMPT, Sampling(5))
        return server.seen

    seen = remote(scenario, settings={"extra": {"priority": 3}})
    assert [request["path"] for request in seen] == ["/v1/models", *["/v1/completions"] * 2]
    sent = seen[-1]
    assert sent.pop("headers")["Authorization"] == "Bearer key-for-tests"
    assert sent == {
        "path": "/v1/completions",
        "model": "tiny",
        "prompt": PROMPT.tolist(),
        "max_tokens": 5,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "stop": [],
        "stop_token_ids": [],
        "ignore_eos": True,
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,
        "add_special_tokens": False,
        "logprobs": 0,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "priority": 3,
    }


def test_only_the_requests_own_stop_ids_end_it(remote, model):
    async def scenario(engine, own, server):
        expected = await own.generate(PROMPT, Sampling(12, temperature=0))
        server.eos = int(expected.ids[3])
        done = await engine.generate(PROMPT, Sampling(12, temperature=0))
        assert done.ids.tolist() == expected.ids.tolist()

    remote(scenario)


def test_a_full_context_ends_a_completion(remote):
    async def scenario(engine, own, server):
        done = await engine.generate(PROMPT, Sampling(500))
        assert (len(done.ids), done.finish) == (64 - len(PROMPT), "length")
        with pytest.raises(EngineError, match="64 ids leaves no room in the server's context"):
            await engine.generate(range(64), NINE)

    remote(scenario)


def test_scores_are_the_models_own(remote):
    async def scenario(engine, own, server):
        ids = np.arange(63) * 3
        spans = [(1, 4), (9, 9), (20, 40), (7, 12)]
        here, there = await own.score(ids, spans), await engine.score(ids, spans)
        for one, other in zip(here, there, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)
            assert other.dtype == np.float32
        assert len(server.seen[-1]["prompt"]) == 40  # no more than was asked for
        count = len(server.seen)
        assert [len(x) for x in await engine.score(ids, [(3, 3)])] == [0]
        assert await engine.score(ids, []) == []
        assert len(server.seen) == count
        with pytest.raises(EngineError, match="64 ids are too many to score"):
            await engine.score(np.arange(64), [(63, 64)])

    remote(scenario)


# ---- servers that won't do ------------------------------------------------------------


def changing(**fields):
    def edit(answer):
        answer["choices"][0].update(fields)

    return edit


def without_a_log_prob(answer):
    answer["choices"][0]["logprobs"]["token_logprobs"].pop()


def of_other_tokens(answer):
    answer["choices"][0]["logprobs"]["tokens"] = ["hello"]


def not_a_number(answer):
    answer["choices"][0]["logprobs"]["token_logprobs"] = [None]


def logits(answer):
    answer["choices"][0]["logprobs"]["token_logprobs"] = [17.25]


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (changing(token_ids=None), "does not return token ids.*OpenAIChatEngine"),
        (changing(token_ids=["a"]), "does not return token ids"),
        (changing(logprobs=None), "no log-probs for 1 token ids"),
        (without_a_log_prob, "0 log-probs for 1 token ids"),
        (of_other_tokens, "other tokens"),
        (not_a_number, "no numbers"),
        (logits, "not raw"),
        (changing(prompt_token_ids=[1, 2, 3]), "changed the prompt"),
        (changing(finish_reason="error"), "ended with 'error'"),
        (lambda answer: answer.update(choices=[]), "one choice"),
    ],
)
def test_answers_that_can_not_be_trusted_are_refused(remote, edit, said):
    async def scenario(engine, own, server):
        with pytest.raises(EngineError, match=said):
            await engine.generate(PROMPT, NINE)

    remote(scenario, edit=edit)


def completions(change):
    """An edit of answers of several ids, which the opening probe's is not."""

    def edit(answer):
        choice = answer["choices"][0]
        if len(choice.get("token_ids") or ()) > 1:
            change(choice)
            ids = choice["token_ids"]
            choice["logprobs"]["tokens"] = [f"token_id:{id_}" for id_ in ids]

    return edit


def more_ids(choice):
    choice["token_ids"] *= 9
    choice["logprobs"]["token_logprobs"] *= 9


def no_ids(choice):
    choice["token_ids"], choice["logprobs"]["token_logprobs"] = [], []


def with_first(value):
    return lambda choice: choice["logprobs"]["token_logprobs"].__setitem__(0, value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda choice: choice["token_ids"].__setitem__(0, 10**6), "the model's from 0 to"),
        (lambda choice: choice["token_ids"].__setitem__(0, 2**40), "too large"),
        (lambda choice: choice["token_ids"].__setitem__(0, -1), "from -1"),
        (lambda choice: choice["token_ids"].__setitem__(0, True), "does not return token ids"),
        (lambda choice: choice["token_ids"].__setitem__(0, 1.0), "does not return token ids"),
        (more_ids, "where 9 were asked for"),
        (no_ids, "no ids"),
        (with_first("-1.0"), "no numbers"),
        (with_first(None), "no numbers"),
        (with_first(True), "not raw"),
        (with_first(float("-inf")), "NaN or infinite"),
        (with_first(0.5), "not raw"),
        (with_first(-9999.0), "-9999 stands for minus infinity"),
        (lambda choice: choice.update(finish_reason=None), "ended with None"),
    ],
)
def test_what_was_not_asked_for_is_refused(remote, change, said):
    async def scenario(engine, own, server):
        engine.vocabulary = own.vocabulary
        with pytest.raises(EngineError, match=said):
            await engine.generate(PROMPT, NINE)

    remote(scenario, edit=completions(change))


def test_an_id_that_the_model_does_not_have_is_never_sent(remote):
    async def scenario(engine, own, server):
        engine.vocabulary = own.vocabulary
        with pytest.raises(EngineError, match="the model's from 0 to"):
            await engine.generate([1, own.vocabulary], NINE)
        with pytest.raises(EngineError, match="whole numbers"):
            await engine.score([1.5, 2], [(1, 2)])
        assert not server.seen

    remote(scenario)


def test_a_server_of_processed_log_probs_is_refused(remote):
    async def scenario(engine, own, server):
        with pytest.raises(EngineError, match="--logprobs-mode raw_logprobs"):
            await engine.generate(PROMPT, NINE)

    remote(scenario, raw=False)


def test_a_server_that_can_not_score_is_refused(remote):
    async def scenario(engine, own, server):
        def without(answer):
            answer["choices"][0].pop("prompt_logprobs", None)

        await engine.generate(PROMPT, NINE)
        server.edit = without
        with pytest.raises(EngineError, match="can't score"):
            await engine.score(PROMPT, [(1, 5)])
        server.edit = changing(prompt_logprobs=[None] * 5)
        with pytest.raises(EngineError, match="not those of the prompt"):
            await engine.score(PROMPT, [(1, 5)])

    remote(scenario)


def test_an_unknown_model_is_refused_naming_the_known(remote):
    async def scenario(engine, own, server):
        with pytest.raises(EngineError, match=r"no model 'large'; it has \['tiny'\]"):
            await engine.generate(PROMPT, NINE)

    remote(scenario, name="large")


@pytest.mark.parametrize("ids", [[], [-1]])
def test_ids_that_make_no_sense_are_refused_before_anything_is_sent(remote, ids):
    async def scenario(engine, own, server):
        with pytest.raises(EngineError, match=r"at least one id|0 or more"):
            await engine.generate(ids, NINE)
        with pytest.raises(EngineError, match="span"):
            await engine.score([1, 2], [(0, 1)])
        assert not server.seen

    remote(scenario)


def test_settings_that_can_not_work_are_refused():
    for settings, said in (
        ({"base_url": "host:8000"}, "base_url must be an http"),
        ({"model": ""}, "model is blank"),
        ({"timeout": 0.0}, "timeout must be above 0"),
        ({"max_in_flight": 0}, "max_in_flight must be at least 1"),
    ):
        with pytest.raises(SettingError, match=said):
            OpenAIServerEngine(**({"base_url": "http://a/v1", "model": "m"} | settings))


# ---- failures, pauses, closes ---------------------------------------------------------


def test_what_may_pass_is_tried_again_and_the_last_failure_told(remote):
    async def scenario(engine, own, server):
        server.faults = [(503, "", {}), (429, "", {"Retry-After": "2"})]
        await engine.generate(PROMPT, NINE)
        server.faults = [(500, "", {})] * 3
        with pytest.raises(EngineError, match=r"500.*after 3 tries"):
            await engine.generate(PROMPT, NINE)
        server.faults = [(400, {"error": {"message": "Token id 9 is out of vocabulary"}}, {})]
        with pytest.raises(EngineError, match="out of vocabulary"):
            await engine.generate(PROMPT, NINE)

    remote(scenario)


def test_many_first_requests_meet_the_server_once(remote):
    async def scenario(engine, own, server):
        await asyncio.gather(*(engine.generate(PROMPT, NINE) for _ in range(20)))
        paths = [request["path"] for request in server.seen]
        assert paths.count("/v1/models") == 1
        assert len(paths) == 22
        assert server.most <= 4

    remote(scenario, settings={"max_in_flight": 4})


def test_a_pause_waits_for_what_is_in_flight_and_holds_the_rest(remote):
    async def scenario(engine, own, server):
        await engine.generate(PROMPT, NINE)
        server.gate = asyncio.Event()
        running = asyncio.create_task(engine.generate(PROMPT, NINE))
        await server.entered.wait()
        pausing = asyncio.create_task(engine.pause())
        held = asyncio.create_task(engine.score(PROMPT, [(1, 2)]))
        await asyncio.sleep(0)
        assert not pausing.done()
        count = len(server.seen)
        server.gate.set()
        await pausing
        await running
        assert not held.done()
        assert len(server.seen) == count
        await engine.resume()
        assert len((await held)[0]) == 1

    remote(scenario)


def test_cancelling_makes_the_server_drop_the_request(remote):
    async def scenario(engine, own, server):
        await engine.generate(PROMPT, NINE)
        server.gate = asyncio.Event()
        task = asyncio.create_task(engine.generate(PROMPT, NINE))
        await server.entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.dropped.wait()

    remote(scenario, settings={"max_in_flight": 1})


def test_a_close_ends_what_is_pending_and_refuses_the_rest(remote):
    async def scenario(engine, own, server):
        server.gate = asyncio.Event()
        tasks = [asyncio.create_task(engine.generate(PROMPT, NINE)) for _ in range(3)]
        await server.entered.wait()
        await engine.close()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(result, EngineError)
            assert "closed" in str(result)
        await server.dropped.wait()
        for refused in (engine.generate(PROMPT, NINE), engine.pause(), engine.resume()):
            with pytest.raises(EngineError, match="is closed"):
                await refused

    remote(scenario)


def test_weights_are_not_changed_from_here(remote):
    async def scenario(engine, own, server):
        with pytest.raises(EngineError, match=r"keeps its weights.*make a new engine"):
            await engine.update_weights({})
        assert engine.weight_version == 0

    remote(scenario)
