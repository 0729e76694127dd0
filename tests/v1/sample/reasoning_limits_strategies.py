# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Random reasoning requests for property tests, and the model that answers them.

The alphabet is small, so that markers overlap and turn up by chance. Long runs:
``HYPOTHESIS_PROFILE=thorough pytest ...``.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.v1.sample.reasoning_limits_reference import Markers, forced_tokens

NUM_MARKER_TOKENS = 6
VOCAB_SIZE = 8

for _name, _max_examples in {"quick": 100, "thorough": 20_000}.items():
    settings.register_profile(
        _name,
        max_examples=_max_examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
settings.load_profile(os.getenv("HYPOTHESIS_PROFILE", "quick"))


@dataclass
class Request:
    """A request and the model that answers it.

    The model proposes tokens from an endless loop over ``proposals``: after
    output was taken back it goes on differently.
    """

    markers: Markers
    prompt: list[int]
    proposals: list[int]
    budget: int | None = None
    close_len: int | None = None
    needs_start_marker: bool = False
    output: list[int] = field(default_factory=list)
    num_proposed: int = 0

    @property
    def params(self) -> SimpleNamespace:
        """What the runners read of its sampling parameters."""
        return SimpleNamespace(
            thinking_token_budget=self.budget,
            _reasoning_close_len=self.close_len,
            _reasoning_needs_start_marker=self.needs_start_marker,
        )

    def propose(self) -> int:
        token = self.proposals[self.num_proposed % len(self.proposals)]
        self.num_proposed += 1
        return token

    def expected(self, drafts: Sequence[int] = ()) -> list[int | None]:
        """What the reference forces at each draft and after the last."""
        forced = forced_tokens(
            self.markers,
            self.prompt,
            [*self.output, *drafts],
            self.budget,
            self.close_len,
            self.needs_start_marker,
        )
        return forced[len(self.output) :]

    def generate(self, num_tokens: int) -> list[int]:
        """Append tokens as decoding without drafts would; returns the output."""
        for _ in range(num_tokens):
            (forced,) = self.expected()
            proposed = self.propose()
            self.output.append(proposed if forced is None else forced)
        return self.output

    def copy(self) -> "Request":
        return Request(
            self.markers,
            self.prompt,
            self.proposals,
            self.budget,
            self.close_len,
            self.needs_start_marker,
            list(self.output),
            self.num_proposed,
        )

    def draft(self, num_drafts: int, random: Random) -> list[int]:
        """Draft tokens: what will come, up to a random place, then any."""
        if num_drafts == 0:
            return []
        coming = self.copy().generate(num_drafts)[len(self.output) :]
        num_right = random.choice([0, num_drafts, random.randint(0, num_drafts)])
        num_wrong = num_drafts - num_right
        return coming[:num_right] + random.choices(range(VOCAB_SIZE), k=num_wrong)

    def accept(self, drafts: Sequence[int], random: Random) -> None:
        """Append what rejection sampling keeps of the drafts, and one token more."""
        accept_rate = random.choice([0.0, 0.5, 1.0])
        expected = self.expected(drafts)
        for draft, forced in zip(drafts, expected):
            if forced not in (None, draft):
                self.output.append(forced)
                return
            if forced is None and random.random() >= accept_rate:
                self.output.append(self.propose())
                return
            self.output.append(draft)
        proposed = self.propose()
        self.output.append(proposed if expected[-1] is None else expected[-1])


def live_rows(
    drafts: Sequence[int], expected: Sequence[int | None]
) -> Iterator[tuple[int, int | None]]:
    """The positions whose logits can be sampled, with what is forced there.

    A draft that is not the forced token is rejected for certain, so no position
    after it counts.
    """
    for i, forced in enumerate(expected):
        yield i, forced
        if i < len(drafts) and forced not in (None, drafts[i]):
            return


_token_ids = st.integers(0, NUM_MARKER_TOKENS - 1)


def _sequences(min_size: int, max_size: int) -> st.SearchStrategy[list[int]]:
    return st.lists(_token_ids, min_size=min_size, max_size=max_size)


@st.composite
def _any_marker_sets(draw) -> Markers:
    natural_end = draw(_sequences(1, 3))
    before, after = draw(_sequences(0, 2)), draw(_sequences(0, 2))
    forced_end = draw(
        st.sampled_from(
            [
                natural_end,
                before + natural_end,
                natural_end + after,
                before + natural_end + after,
                before + after,
            ]
        ).filter(bool)
    )
    return Markers(
        start=draw(_sequences(1, 3)),
        forced_end=forced_end,
        natural_end=natural_end,
        implicit_ends=draw(st.lists(_sequences(1, 2), max_size=2)),
        turn_boundaries=draw(st.lists(_token_ids, max_size=1)),
        starts_inside=draw(st.booleans()),
    )


def marker_sets() -> st.SearchStrategy[Markers]:
    """Markers that may overlap, contain each other and share tokens.

    What is taken for granted, as real markers do not do otherwise:

    - The start marker does not occur within the forced or the natural end, and no
      exit can begin within a start marker and outlast it.
    - The forced end cannot begin within an implicit end and outlast it, nor within
      any exit where output begins inside a block without a start marker. Only
      then could the first tokens of a close complete an exit that began earlier.
    - Where the forced end does not begin with the natural end, no exit lies within
      the natural end before its last token. Only then could a natural end that is
      continued leave the block early.
    """
    return _any_marker_sets().filter(_are_apart)


def _are_apart(markers: Markers) -> bool:
    earlier = markers.exits if markers.starts_inside else markers.implicit_ends
    natural_end = markers.natural_end
    is_same_begin = markers.forced_end[: len(natural_end)] == natural_end
    return (
        not _contains(markers.forced_end, markers.start)
        and not _contains(natural_end, markers.start)
        and not any(_begins_within(markers.start, end) for end in markers.exits)
        and not any(_begins_within(end[1:], markers.forced_end) for end in earlier)
        and (
            is_same_begin
            or not any(_contains(natural_end[:-1], end) for end in markers.exits)
        )
    )


def _begins_within(first: list[int], second: list[int]) -> bool:
    """Whether the second sequence can begin within the first and outlast it."""
    lengths = range(1, min(len(first) + 1, len(second)))
    return any(first[-n:] == second[:n] for n in lengths)


def _contains(tokens: list[int], marker: list[int]) -> bool:
    offsets = range(len(tokens) - len(marker) + 1)
    return any(tokens[i : i + len(marker)] == marker for i in offsets)


def token_sequences(
    markers: Markers, min_size: int, max_size: int
) -> st.SearchStrategy[list[int]]:
    """Tokens in which markers, and beginnings of markers, are frequent."""
    pieces = [[token] for token in range(VOCAB_SIZE)] + [
        marker[:length]
        for marker in [markers.start, *markers.exits]
        for length in range(1, len(marker) + 1)
    ]
    return st.lists(st.sampled_from(pieces), min_size=min_size, max_size=max_size).map(
        lambda parts: [token for part in parts for token in part][:max_size]
    )


@st.composite
def requests(draw, markers: Markers, limited: bool | None = None) -> Request:
    """A request before its first output token.

    Args:
        markers: Markers of the engine.
        limited: Whether it sets a limit; None for either.

    """
    budgets, close_lens = st.integers(0, 10), st.integers(0, 16)
    kinds = [st.tuples(budgets, close_lens)]
    kinds += [st.tuples(budgets, st.none()), st.tuples(st.none(), close_lens)]
    unset = st.just((None, None))
    if limited is None:
        kinds.append(unset)
    budget, close_len = draw(unset if limited is False else st.one_of(kinds))
    return Request(
        markers,
        prompt=draw(token_sequences(markers, 0, 8)),
        proposals=draw(token_sequences(markers, 1, 16)),
        budget=budget,
        close_len=close_len,
        needs_start_marker=draw(st.booleans()),
    )
