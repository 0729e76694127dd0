# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What the reasoning limits force, written as naively as possible.

One pass over one whole token sequence, with the forced window as an explicit
list. Both model runners are held against it; it shares no code with them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace


@dataclass(frozen=True)
class Markers:
    """The token sequences that open and leave a reasoning block."""

    start: list[int]
    forced_end: list[int]
    natural_end: list[int]
    implicit_ends: list[list[int]] = field(default_factory=list)
    turn_boundaries: list[int] = field(default_factory=list)
    starts_inside: bool = False

    @property
    def exits(self) -> list[list[int]]:
        return [self.natural_end, *self.implicit_ends, self.forced_end]

    @property
    def config(self) -> SimpleNamespace:
        """The markers as the attributes of a `ReasoningConfig`."""
        return SimpleNamespace(
            enabled=True,
            reasoning_start_token_ids=self.start,
            reasoning_end_token_ids=self.forced_end,
            natural_reasoning_end_token_ids=self.natural_end,
            reasoning_exit_token_ids=[self.natural_end, *self.implicit_ends],
            turn_boundary_token_ids=self.turn_boundaries,
            starts_in_reasoning=self.starts_inside,
        )


def forced_tokens(
    markers: Markers,
    prompt: Sequence[int],
    output: Sequence[int],
    budget: int | None,
    close_len: int | None,
    needs_start_marker: bool = False,
) -> list[int | None]:
    """The token forced at each output position, None where the model is free.

    Args:
        markers: Token sequences of the reasoning block.
        prompt: Prompt tokens.
        output: Output tokens, draft tokens included.
        budget: Tokens that a block may hold, if limited.
        close_len: Output length at which the reserve closes, if it does.
        needs_start_marker: Whether the reserve closes only blocks that a start
            marker opened.

    Returns:
        ``len(output) + 1`` entries: the last is for the next token.

    """
    if budget is None and close_len is None:
        return [None] * (len(output) + 1)

    turn = list(prompt)
    for boundary in markers.turn_boundaries:
        while boundary in turn:
            turn = turn[turn.index(boundary) + 1 :]
    tokens = turn + list(output)

    inside = markers.starts_inside
    # Index into `tokens` after the first start marker of the block.
    block_start = len(turn)
    has_start_marker = False
    window: list[int] = []
    forced: list[int | None] = []

    for i in range(len(tokens) + 1):
        position = i - len(turn)
        if position >= 0:
            due = (budget is not None and i - block_start >= budget) or (
                close_len is not None
                and position >= close_len
                and (has_start_marker or not needs_start_marker)
            )
            if inside and due and not window:
                window = _close(markers, tokens[block_start:i])
            forced.append(window[0] if window else None)
        if i == len(tokens):
            break

        if window:
            window = window[1:] if tokens[i] == window[0] else []
        seen = tokens[: i + 1]
        if _ends_with(seen, markers.start) and not (inside and has_start_marker):
            inside, has_start_marker, block_start = True, True, i + 1
        if any(_ends_with(seen, marker) for marker in markers.exits):
            inside = False
    return forced


def _ends_with(tokens: list[int], marker: list[int]) -> bool:
    return tokens[-len(marker) :] == marker


def _close(markers: Markers, block: list[int]) -> list[int]:
    """What closes a block: the rest of the close that its last tokens began."""
    ends = [markers.forced_end, markers.natural_end]
    # `max` keeps the first of equals: the forced end.
    num_begun, end = max(
        ((_num_begun(block, end), end) for end in ends), key=lambda begun: begun[0]
    )
    return end[num_begun:]


def _num_begun(block: list[int], end: list[int]) -> int:
    lengths = range(1, len(end))
    return max((n for n in lengths if _ends_with(block, end[:n])), default=0)
