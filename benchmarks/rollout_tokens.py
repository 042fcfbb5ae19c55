"""An episode in tokens: a transcript that grows, beside the template rendered anew each turn."""

import importlib.util
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rollout_stub import World

from drv_env.protocol import render_observation
from replay.chat_templates import CHATML
from replay.transcript import Transcript

Message = dict[str, str]


@dataclass(frozen=True)
class Tokenised:
    """Milliseconds of processor time a turn, of an episode of ``turns`` and ``tokens``."""

    turns: int
    tokens: int
    ours: float
    theirs: float

    @property
    def speedup(self) -> float:
        """Theirs over ours."""
        return self.theirs / self.ours


def renderer(world: World) -> tuple[str, Callable[[list[Message]], Sequence[int]]]:
    """The usual way to get ids: ``apply_chat_template`` where Transformers is there."""
    if importlib.util.find_spec("transformers") is None:
        template, encode = world.template, world.tokenizer.encode
        return (
            "Jinja and tokenizers",
            lambda messages: encode(template.render(messages), add_special_tokens=False).ids,
        )
    from transformers import PreTrainedTokenizerFast

    wrapped = PreTrainedTokenizerFast(tokenizer_object=world.tokenizer, eos_token="<|im_end|>")
    wrapped.chat_template = CHATML

    def render(messages: list[Message]) -> Sequence[int]:
        found: Sequence[int] = wrapped.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return found

    return "apply_chat_template", render


def tokenise(world: World, turns: int, every: int, rounds: int) -> Tokenised:
    """Both ways through one episode.

    Ours goes through all turns, ``rounds`` times.  Rendering anew is timed at one turn of
    ``every``, in the middle of them: what it costs grows evenly from turn to turn.  The ids
    must be the same.
    """
    calls = world.texts.turns[:-1]
    places = [(calls[turn % len(calls)], turn // len(calls)) for turn in range(turns)]
    texts = [variants[round_ % len(variants)] for variants, round_ in places]
    completions = [world.template.encode_turn(text) for text in texts]
    pages = world.texts.pages
    messages = [render_observation(pages[turn % len(pages)]) for turn in range(turns)]
    opening = [
        {"role": "system", "content": world.texts.prose(300, 300)},
        {"role": "user", "content": world.texts.prose(30, 30)},
    ]
    ours = []
    for _ in range(rounds):
        started = time.process_time()
        transcript = Transcript(world.template)
        transcript.prompt(opening)
        for ids, message in zip(completions, messages, strict=True):
            transcript.completion(ids)
            transcript.observation(message)
        ours.append(time.process_time() - started)

    render = renderer(world)[1]
    theirs = 0.0
    conversation = list(opening)
    for turn, (text, message) in enumerate(zip(texts, messages, strict=True)):
        conversation += [
            {"role": "assistant", "content": text},
            {"role": "user", "content": message},
        ]
        if turn % every != every // 2:
            continue
        started = time.process_time()
        found = render(conversation)
        theirs += time.process_time() - started
        assert list(found) == transcript.ids[: transcript.history_end(turn + 1)].tolist()
    measured = len(range(every // 2, turns, every))
    return Tokenised(
        turns,
        len(transcript),
        statistics.median(ours) / turns * 1e3,
        theirs / measured * 1e3,
    )
