"""An agent of your own in an ``env.step`` loop, in an offline world.

    python examples/env_loop.py

The agent here is thirty lines of rules; put your model in its place.  It sees the
question, then observation messages, and writes one turn of text at a time.
"""

import re

import gymnasium

import drv_env
from drv_env.protocol import Answer, Search, Visit, render_turn, search_hits
from drv_env.tools.offline import OfflineTools
from drv_env.worlds import WorldRecipe, questions


class RuleAgent:
    """Follows "What is X's founder's birthplace?" one possessive at a time."""

    def __init__(self, question: str) -> None:
        subject, *self.relations = re.findall(r"\w+(?='s|\?)", question)
        self.entity = subject

    def act(self, message: str) -> str:
        """The next turn, from the last message."""
        relation = self.relations[0]
        if not message.startswith("<tool_response>"):
            return render_turn(f"I look for {self.entity}.", Search((self.entity,)))
        hits = search_hits(message)
        if hits:
            url = hits[0]["url"]
            return render_turn(f"I look for the {relation}.", Visit((url,), relation))
        found = re.search(rf"The {relation} is (\w+)", message)
        self.entity = found[1] if found else "unknown"
        self.relations.pop(0)
        if not self.relations or found is None:
            return render_turn("That is the answer.", Answer(self.entity))
        return render_turn(f"Now for {self.entity}.", Search((self.entity,)))


def main() -> None:
    world = WorldRecipe(seed=7)
    env = gymnasium.make(
        drv_env.ENV_ID,
        tasks=questions(world.build(), hops=(2,)),
        tools=OfflineTools([world]),
        render_mode="ansi",
    )
    observation, info = env.reset(seed=0)
    agent, done, total = RuleAgent(observation), False, 0.0
    while not done:
        observation, reward, terminated, truncated, info = env.step(agent.act(observation))
        done = terminated or truncated
        total += float(reward)
    print(env.render())
    print(f"\nanswer {info['answer']!r}, ending {info['ending']}, reward {total}")
    env.close()


if __name__ == "__main__":
    main()
