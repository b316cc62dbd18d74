"""The steps of programs that append over HTTP: drawn from the seed, beside what the others do."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from .groups.lives import TOPICS, Life

POSTS: Final = 12


def posts(seed: str, topics: Mapping[str, Mapping[str, Any]], busy_ms: Sequence[int]) -> list[Life]:
    """Bodies for one partition or several, and streams."""
    rng = random.Random(f"{seed}/posts")
    steps: list[Life] = []
    for _ in range(POSTS):
        at_ms = rng.choice(busy_ms) + int(rng.expovariate(1 / 1500))
        topic = rng.choice(TOPICS)
        partitions = range(topics[topic]["partitions"])
        if rng.random() < 0.5:
            chosen = rng.sample(partitions, rng.randrange(1, len(partitions) + 1))
            how: dict[str, Any] = {"topic": topic, "partitions": chosen, "count": rng.choice((1, 2, 5))}
            steps.append((at_ms, f"http {rng.randrange(2)}", "post", how))
        else:
            how = {"topic": topic, "partition": rng.choice(partitions), "count": rng.choice((1, 5, 12))}
            steps.append((at_ms, f"http {rng.randrange(2)}", "stream", how))
    return steps
