# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The V1 holder and the shared rules, held against the naive reference."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.v1.sample.reasoning_limits_reference import Markers
from tests.v1.sample.reasoning_limits_strategies import (
    Request,
    live_rows,
    marker_sets,
    requests,
)
from vllm.v1.sample.reasoning_limits import (
    ReasoningBlockScan,
    ReasoningLimits,
    ReasoningMarkers,
)


def _limits(request: Request) -> ReasoningLimits:
    limits = ReasoningLimits.from_params(request.params)
    assert limits is not None
    return limits


def _scan(request: Request) -> ReasoningBlockScan:
    markers = ReasoningMarkers.from_config(request.markers.config)
    return ReasoningBlockScan(markers, request.prompt)


@given(st.data())
def test_tokens_read_one_by_one_or_in_chunks_force_what_the_reference_forces(data):
    markers = data.draw(marker_sets())
    request = data.draw(requests(markers, limited=True))
    chunks = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=16))
    scan, limits = _scan(request), _limits(request)
    for num_tokens in chunks:
        assert scan.forced_token(limits) == request.expected()[0]
        begin = len(request.output)
        scan.extend(request.generate(num_tokens)[begin:])
    assert scan.forced_token(limits) == request.expected()[0]


@given(st.data())
def test_no_token_is_forced_before_the_length_at_which_one_could_be(data):
    markers = data.draw(marker_sets())
    request = data.draw(requests(markers, limited=True))
    scan, limits = _scan(request), _limits(request)
    bounds = []
    for k in range(24):
        bounds.append(scan.next_due_len(limits))
        if request.expected()[0] is not None:
            assert max(bounds) <= k
        else:
            assert bounds[-1] > k
        begin = len(request.output)
        scan.extend(request.generate(1)[begin:])


@given(st.data(), st.randoms(use_true_random=False), st.integers(0, 3))
def test_a_batch_forces_exactly_what_the_reference_forces(
    data, random: Random, num_spec_tokens
):
    from tests.v1.sample.thinking_budget_driver import HolderBatch

    markers: Markers = data.draw(marker_sets())
    waiting = data.draw(st.lists(requests(markers), min_size=1, max_size=4))
    batch = HolderBatch(markers, num_spec_tokens)

    for _ in range(data.draw(st.integers(1, 16))):
        # The scheduler: preempt, resume or start, reorder, take output back.
        remove = [r for r in batch.requests if random.random() < 0.1]
        add = [r for r in waiting if random.random() < 0.6]
        waiting = [r for r in waiting if not _is_in(r, add)] + remove
        for request in add:
            # A resumed request comes with a list of its own.
            request.output = list(request.output)
        num_reqs = len(batch.requests) - len(remove) + len(add)
        swaps = [
            tuple(random.sample(range(num_reqs), 2))
            for _ in range(random.randint(0, num_reqs // 2))
        ]
        batch.update(remove, add, swaps)
        is_shorter = [random.random() < 0.1 for _ in batch.requests]
        for request, shorter in zip(batch.requests, is_shorter):
            if shorter:
                del request.output[random.randint(0, len(request.output)) :]

        drafts = [
            request.draft(random.randint(0, num_spec_tokens), random)
            for request in batch.requests
        ]
        # What is not known yet comes after all that was read. So it never makes up
        # for tokens that were taken back, which only their number tells.
        tails = [
            0 if shorter else random.choice([0, 0, 0, 1, 2]) for shorter in is_shorter
        ]
        for request, num_unknown in zip(batch.requests, tails):
            request.output += [-1] * num_unknown
        forced = batch.forced(drafts) if batch.requests else []
        for request, num_unknown in zip(batch.requests, tails):
            del request.output[len(request.output) - num_unknown :]

        for request, ids, rows in zip(batch.requests, drafts, forced):
            for i, expected in live_rows(ids, request.expected(ids)):
                assert rows[i] == expected
            # What is sampled amid a chunked prefill is dropped.
            if random.random() < 0.9:
                request.accept(ids, random)


@given(st.data())
def test_a_batch_without_limits_tracks_nothing(data):
    from tests.v1.sample.thinking_budget_driver import HolderBatch

    markers = data.draw(marker_sets())
    batch = HolderBatch(markers)
    unlimited = requests(markers, limited=False)
    batch.update(add=data.draw(st.lists(unlimited, min_size=1, max_size=4)))
    assert not batch.holder.has_tracked_requests()
    assert batch.holder._state == {}

    limited = data.draw(requests(markers, limited=True))
    batch.update(add=[limited])
    assert batch.holder.has_tracked_requests()
    batch.update(remove=[limited])
    assert not batch.holder.has_tracked_requests()


def _is_in(request: Request, others: list[Request]) -> bool:
    return any(other is request for other in others)
