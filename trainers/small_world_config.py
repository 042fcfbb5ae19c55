"""The small world's settings, apart from it: whoever reads settings needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from drv_env.settings import SEED, at_least, check_fields
from drv_env.worlds import Noise

_NOISE = Noise(stop_early=0.6, wrong_entity=0.25, duplicate=0.15, malformed=0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSettings:
    """What a small world is; the defaults are what the demo and the study play.

    Long questions, and an expert that is more often wrong than right: its clone has learnt the
    game with its mistakes, and reinforcement has something to do.

    Attributes:
        seed: decides the webs, which of their questions are drawn, and the expert's play.
        worlds: webs, which share their names and differ in their facts; at least 1.
        hops: how many facts a question may chain; an expert without mistakes plays twice as
            many turns, and one to answer.
        balanced: as many questions of each number of hops (the fewest decides, in each part)
            rather than all there are, most of which are the longest.
        max_turns: of an episode; the last must answer.
        context: tokens of an episode.
        turn_tokens: the most tokens of one turn; the expert's longest has 24.
        noise: how often the expert errs.

    Raises:
        SettingError: naming a value that can't work.
    """

    seed: int = 0
    worlds: int = 12
    hops: tuple[int, ...] = (2, 3, 4)
    balanced: bool = True
    max_turns: int = 12
    context: int = 640
    turn_tokens: int = 32
    noise: Noise = _NOISE

    def __post_init__(self) -> None:
        check_fields(
            self,
            seed=SEED,
            worlds=at_least(1),
            hops=at_least(1),
            max_turns=at_least(1),
            context=at_least(1),
            turn_tokens=at_least(1),
        )
