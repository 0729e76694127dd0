# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Model runner V2 forces what the naive reference forces, and works when due.

Without a GPU the kernel is interpreted (`test_triton_interpreter`).
"""

from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from vllm.triton_utils import HAS_TRITON

if not HAS_TRITON:
    pytest.skip("run by test_triton_interpreter.py", allow_module_level=True)

from tests.v1.sample.reasoning_limits_reference import Markers
from tests.v1.sample.reasoning_limits_strategies import (
    Request,
    marker_sets,
    requests,
)
from tests.v1.worker.slot_batch import (
    END,
    FAR,
    FORCED_LOGIT,
    PHRASE_FIRST,
    PHRASE_LAST,
    PLAIN,
    SO,
    THINK,
    TOOL,
    TURN,
    VOCAB_SIZE,
    WORD,
    request_of,
)
from tests.v1.worker.thinking_budget_v2_driver import (
    DEVICE,
    StateBatch,
    count_launches,
)
from vllm import SamplingParams
from vllm.v1.sample.reasoning_limits import NO_LIMIT
from vllm.v1.worker.gpu.sample import thinking_budget
from vllm.v1.worker.gpu.sample.sampler import Sampler
from vllm.v1.worker.gpu.sample.thinking_budget import ThinkingBudgetState
from vllm.v1.worker.gpu.spec_decode.rejection_sampler import RejectionSampler

# Scanned in blocks so short that markers lie across their borders.
_short_scan_blocks = mock.patch.object(thinking_budget, "_SCAN_BLOCK", 8)


@pytest.fixture
def launches(monkeypatch):
    return count_launches(monkeypatch)


def _started(
    *started: Request,
    num_spec_tokens: int = 0,
    max_model_len: int = 256,
    max_num_reqs: int = 8,
) -> StateBatch:
    batch = StateBatch(
        started[0].markers, num_spec_tokens, max_num_reqs, max_model_len, VOCAB_SIZE
    )
    for request in started:
        batch.add(request)
    batch.apply_staged_writes()
    return batch


# --- What is forced -------------------------------------------------------------


@_short_scan_blocks
@given(st.data(), st.randoms(use_true_random=False), st.integers(0, 3))
def test_a_batch_forces_exactly_what_the_reference_forces(
    data, random: Random, num_spec_tokens
):
    markers = data.draw(marker_sets())
    waiting = data.draw(st.lists(requests(markers), min_size=1, max_size=4))
    num_steps = data.draw(st.integers(1, 12))
    batch = StateBatch(markers, num_spec_tokens)
    batch.hold_against_reference(waiting, num_steps, num_spec_tokens, random)


@pytest.mark.parametrize(
    ("markers", "prompt", "output", "drafts", "budget", "close_len", "rows"),
    [
        pytest.param(PLAIN, [THINK], [7, 7], [], None, 3, [None], id="not-yet-due"),
        pytest.param(PLAIN, [THINK], [7, 7, 7], [], None, 3, [END], id="reserve"),
        pytest.param(PLAIN, [THINK], [7, 7, 7], [], 3, None, [END], id="budget"),
        pytest.param(PLAIN, [THINK, 7], [7], [], 3, 1, [END], id="reserve-first"),
        pytest.param(PLAIN, [THINK, 7], [7], [], 2, 5, [END], id="budget-first"),
        pytest.param(PLAIN, [7], [7, 7], [], 0, 0, [None], id="never-opened"),
        pytest.param(
            PLAIN, [7], [7] * 4 + [THINK], [], None, 2, [END], id="opened-after-edge"
        ),
        pytest.param(
            PLAIN, [THINK], [7, TOOL, 7, 7], [], 2, 3, [None], id="inside-a-tool-call"
        ),
        pytest.param(
            PHRASE_FIRST,
            [THINK],
            [7, END, 7, 7],
            [],
            2,
            3,
            [None],
            id="no-phrase-after-the-models-own-end",
        ),
        pytest.param(
            PHRASE_LAST,
            [THINK],
            [7, END],
            [SO],
            1,
            None,
            [SO, FAR],
            id="phrase-after-the-end-it-begins-with",
        ),
        pytest.param(
            PHRASE_LAST,
            [THINK],
            [7, END],
            [],
            2,
            None,
            [None],
            id="no-phrase-after-an-end-before-the-edge",
        ),
        pytest.param(
            PHRASE_LAST,
            [THINK],
            [7, END, SO, FAR, 7, END],
            [SO],
            1,
            None,
            [None, None],
            id="no-second-phrase-in-the-answer",
        ),
        pytest.param(
            Markers([THINK], [SO, END, FAR], [END, FAR]),
            [THINK],
            [7, END],
            [FAR, 7],
            None,
            2,
            [FAR, None, None],
            id="natural-end-begun-at-the-edge",
        ),
        pytest.param(
            PHRASE_FIRST,
            [THINK],
            [7, SO],
            [FAR, END, 7],
            None,
            1,
            [FAR, END, None, None],
            id="window-across-drafts",
        ),
        pytest.param(
            Markers([THINK, SO], [END], [END]),
            [THINK],
            [SO, 7],
            [],
            1,
            None,
            [END],
            id="start-across-prompt-and-output",
        ),
        pytest.param(
            Markers([THINK, SO], [END], [END]),
            [7],
            [7, THINK],
            [SO, 7],
            1,
            None,
            [None, None, END],
            id="start-across-output-and-drafts",
        ),
        pytest.param(
            PLAIN,
            [THINK],
            [7],
            [END, THINK, 7],
            1,
            None,
            [END, None, None, END],
            id="end-start-and-token-in-one-step",
        ),
        pytest.param(
            PLAIN, [THINK, 7, THINK], [7], [], 3, None, [END], id="duplicate-start"
        ),
        pytest.param(
            PLAIN, [THINK, 7, TURN], [7], [], 0, 0, [None], id="start-in-users-text"
        ),
        pytest.param(
            PLAIN,
            [THINK],
            [TURN, 7],
            [],
            2,
            None,
            [END],
            id="turn-boundary-in-the-output",
        ),
        pytest.param(
            Markers([THINK], [END], [END], starts_inside=True),
            [7, 7],
            [7],
            [],
            1,
            None,
            [END],
            id="starts-inside",
        ),
    ],
)
def test_each_row_is_judged_by_its_own_prefix(
    markers, prompt, output, drafts, budget, close_len, rows
):
    request = request_of(markers, prompt, output, budget, close_len)
    batch = _started(request, num_spec_tokens=3)
    (forced,) = batch.forced([request], [drafts])
    assert forced == rows == request.expected(drafts)
    # The device judges the same where the host cannot tell when it is due.
    batch.state.due_len[:] = 0
    assert batch.forced([request], [drafts]) == [rows]


# --- Slots ----------------------------------------------------------------------


@pytest.mark.parametrize("num_forced", [0, 1, 2, 3])
def test_a_resumed_request_goes_on_where_it_was_preempted(num_forced):
    window = PHRASE_FIRST.forced_end
    request = request_of(PHRASE_FIRST, [THINK], [7, 7], close_len=2)
    batch = _started(request)
    for token in window[:num_forced]:
        assert batch.forced([request]) == [[token]]
        request.output.append(token)
        batch.commit()

    batch.remove(request)
    other = request_of(PHRASE_FIRST, [7], close_len=0)
    batch.add(other)
    batch.add(request)
    batch.apply_staged_writes()
    assert batch.slot_of(request) != batch.slot_of(other)
    expected = [*window, None][num_forced]
    assert batch.forced([other, request]) == [[None], [expected]]


def test_a_reused_slot_forgets_the_request_before():
    inside = request_of(PLAIN, [THINK, 7, 7], budget=0)
    outside = request_of(PLAIN, [7, 7, 7], budget=0)
    unlimited = request_of(PLAIN, [THINK, 7, 7])
    batch = _started(inside)
    for request, expected in (
        (inside, END),
        (outside, None),
        (inside, END),
        (unlimited, None),
        (inside, END),
    ):
        batch.remove(batch.requests[0])
        batch.add(request)
        batch.apply_staged_writes()
        assert batch.slot_of(request) == 7
        assert batch.forced([request]) == [[expected]]


def test_every_slot_is_judged_on_its_own_in_any_order():
    num_reqs = 64
    started = [
        request_of(PLAIN, [THINK] + [7] * i, budget=num_reqs // 2)
        for i in range(num_reqs)
    ]
    batch = _started(*started, max_num_reqs=num_reqs)
    assert not batch.req_states.free_indices
    Random(0).shuffle(started)
    expected = [
        [END if len(request.prompt) > num_reqs // 2 else None] for request in started
    ]
    assert batch.forced(started) == expected


def test_a_sequence_that_became_shorter_is_read_again():
    request = request_of(PLAIN, [THINK], close_len=2)
    batch = _started(request)
    request.output += [7, 7, END, 7]
    batch.commit()
    assert batch.forced([request]) == [[None]]
    del request.output[2:]
    batch.commit()
    assert batch.forced([request]) == [[END]]


# --- Sizes ----------------------------------------------------------------------


@pytest.mark.parametrize("limit", [NO_LIMIT - 1, NO_LIMIT, 2**40])
def test_limits_up_to_and_beyond_int32_do_not_overflow(limit):
    far = request_of(PLAIN, [7, THINK, 7, 7], [7], budget=limit, close_len=limit)
    near = request_of(PLAIN, [7, THINK, 7, 7], [7], budget=limit, close_len=1)
    batch = _started(far, near)
    assert batch.forced([far, near]) == [[None], [END]]


@pytest.mark.parametrize(
    ("prompt", "budget", "expected"),
    [
        pytest.param([THINK, SO], 100_000, None, id="within-the-budget"),
        pytest.param([THINK, SO], 99_998, END, id="opened-at-the-beginning"),
        pytest.param([THINK, SO, END], 0, None, id="closed-at-the-beginning"),
        pytest.param([7] * 1023 + [THINK, SO], 0, END, id="across-a-scan-block"),
        pytest.param([7] * 99_998 + [THINK, SO], 0, END, id="opened-at-the-end"),
        pytest.param([THINK, SO] + [7] * 9_999 + [TURN], 0, None, id="earlier-turn"),
    ],
)
def test_a_prompt_of_100000_tokens_is_read_in_blocks(prompt, budget, expected):
    markers = Markers([THINK, SO], [END], [END], turn_boundaries=[TURN])
    prompt = prompt + [7] * (100_000 - len(prompt))
    request = request_of(markers, prompt, budget=budget)
    batch = _started(request, max_model_len=100_100, max_num_reqs=1)
    # It is read from the device, as a request is whose tokens the host let go.
    batch.state.due_len[0] = 0
    assert batch.forced([request]) == [[expected]]
    scan_pos = batch.state.cached_scan_pos[0].item()
    assert scan_pos == 100_000

    request.output += [7]
    batch.commit()
    batch.forced([request])
    assert batch.state.cached_scan_pos[0].item() == 100_001


# --- Work only when due ---------------------------------------------------------


def test_a_thousand_steps_that_are_not_due_launch_nothing(launches):
    started = [
        request_of(PLAIN, [THINK], budget=1_000),
        request_of(PLAIN, [THINK], close_len=1_000),
        # A prompt beyond the budget whose block is closed.
        request_of(PLAIN, [THINK] + [7] * 2_000 + [END], budget=1_000),
        request_of(PLAIN, [THINK]),
    ]
    batch = _started(*started, max_model_len=4_000)
    logits = torch.zeros(len(started), VOCAB_SIZE, device=DEVICE)
    for _ in range(1_000):
        batch.state.apply(logits, batch.context(started))
        for request in started:
            request.output.append(7)
    assert launches.num_launches == 0
    assert not logits.any()

    batch.commit()
    assert batch.forced(started) == [[END], [END], [None], [None]]
    assert launches.num_launches == 1


def test_only_the_last_chunk_of_a_prefill_is_judged(launches):
    request = request_of(PLAIN, [THINK] + [7] * 9, budget=2, close_len=0)
    batch = _started(request)
    for num_left in (8, 4, 1):
        assert batch.forced([request], [()], [num_left]) == [[None]]
    assert launches.num_launches == 0
    assert batch.forced([request]) == [[END]]


def test_drafts_that_reach_the_limit_are_judged_in_time(launches):
    request = request_of(PLAIN, [THINK], [7], close_len=4)
    batch = _started(request, num_spec_tokens=3)
    assert batch.forced([request], [[7, 7]]) == [[None] * 3]
    assert launches.num_launches == 0
    assert batch.forced([request], [[7, 7, 7]]) == [[None] * 3 + [END]]
    assert launches.num_launches == 1


def test_a_request_without_limits_changes_no_state(launches):
    batch = _started(request_of(PLAIN, [THINK]))
    limits, scans = batch.state.request_limits.gpu, batch.state.block_scan.clone()
    for _ in range(7):
        assert not batch.add(request_of(PLAIN, [THINK, 7]))
    batch.apply_staged_writes()
    assert batch.forced(batch.requests) == [[None]] * 8
    assert batch.state.request_limits.gpu is limits
    assert torch.equal(batch.state.block_scan, scans)
    assert launches.num_launches == 0


def test_an_engine_without_reasoning_ignores_limits():
    batch = StateBatch(PLAIN)
    state = ThinkingBudgetState(batch.req_states, None)
    assert not state.add_request(0, SamplingParams(thinking_token_budget=0))
    state.apply_staged_writes()
    assert not state.is_due(np.array([0]), np.array([100]))


class _RecordOps(TorchDispatchMode):
    """Records the tensor operations that PyTorch runs."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.ops.append(str(func))
        return func(*args, **(kwargs or {}))


def test_forcing_is_one_launch_without_a_tensor_operation(monkeypatch):
    """Nothing is left that could wait for the device."""
    grids = []

    class _Kernel:
        def __getitem__(self, grid):
            grids.append(grid)
            return lambda *args, **kwargs: None

    monkeypatch.setattr(thinking_budget, "_thinking_budget_kernel", _Kernel())
    request = request_of(PLAIN, [THINK], budget=0)
    batch = _started(request, num_spec_tokens=3)
    context = batch.context([request], [[7, 7, 7]])
    logits = torch.zeros(4, VOCAB_SIZE, device=DEVICE)
    with _RecordOps() as recorded:
        batch.state.apply(logits, context)
    assert grids == [(4,)]
    assert recorded.ops == []


# --- The sampler ----------------------------------------------------------------


def _sample(batch: StateBatch, logits: torch.Tensor) -> torch.Tensor:
    context = batch.context(batch.requests)
    sampler: Any = batch.state
    return sampler.apply_sampling_params(
        logits,
        context.expanded_idx_mapping,
        context.idx_mapping,
        context.idx_mapping_np,
        context.pos,
        context.input_ids,
        context.expanded_local_pos,
        context.seq_lens_upper_bound_np,
        # The samplers do it later.
        skip_top_k_top_p=True,
    )


def _sampled(
    request: Request, params: SamplingParams, vocab_size: int = VOCAB_SIZE
) -> StateBatch:
    """A request in front of the whole sampler."""
    batch = StateBatch(request.markers, num_spec_tokens=3, vocab_size=vocab_size)
    batch.state = Sampler(
        vllm_config=SimpleNamespace(reasoning_config=request.markers.config),
        max_num_reqs=batch.req_states.max_num_reqs,
        vocab_size=vocab_size,
        device=DEVICE,
        req_states=batch.req_states,
    )
    batch.add(request, params)
    batch.apply_staged_writes()
    return batch


@pytest.mark.parametrize("limit", ["budget", "reserve"])
def test_the_sampler_copies_logits_once_a_limit_is_due(limit):
    params = SamplingParams(temperature=0.0)
    if limit == "budget":
        params.thinking_token_budget = 4
    else:
        params._reasoning_close_len = 3
    request = request_of(PLAIN, [THINK, 7])
    batch = _sampled(request, params)

    logits = torch.zeros(1, VOCAB_SIZE, dtype=torch.bfloat16, device=DEVICE)
    for _ in range(3):
        assert _sample(batch, logits) is logits
        request.output.append(7)
        batch.commit()
    forced = _sample(batch, logits)
    assert forced.dtype == torch.float32
    assert forced[0].argmax() == END and forced[0, END] == FORCED_LOGIT


def test_no_sampling_parameter_beats_a_forced_token():
    params = SamplingParams(
        temperature=2.0,
        min_p=0.9,
        min_tokens=8,
        stop_token_ids=[END],
        logit_bias={END: -100.0, 7: 100.0},
        repetition_penalty=2.0,
        frequency_penalty=2.0,
        presence_penalty=2.0,
        _bad_words_token_ids=[[END]],
        thinking_token_budget=0,
    )
    request = request_of(PLAIN, [THINK, 7])
    batch = _sampled(request, params)
    logits = torch.zeros(1, VOCAB_SIZE, device=DEVICE)
    assert _sample(batch, logits).softmax(-1)[0, END] == 1.0


# --- The rejection sampler ------------------------------------------------------

# More than one of the blocks in which rejected tokens are sampled again.
WIDE_VOCAB_SIZE = 3_000


def _verify(
    batch: StateBatch, drafts: list[list[int]], logits: torch.Tensor
) -> list[list[int]]:
    """Tokens that the rejection sampler samples of each request."""
    config = SimpleNamespace(
        num_speculative_tokens=3,
        enable_adaptive_verification=False,
        rejection_sample_method="standard",
        fly_entropy_threshold=0.3,
        fly_entropy_top_k=3,
    )
    context = batch.context(batch.requests, drafts)
    ends = np.cumsum([0] + [1 + len(ids) for ids in drafts], dtype=np.int32)
    seq_lens = torch.from_numpy(context.seq_lens_upper_bound_np)
    num_rows = len(context.input_ids)
    starts = (seq_lens - torch.tensor([len(ids) + 1 for ids in drafts])).to(DEVICE)
    request_of_row = torch.repeat_interleave(
        torch.arange(len(drafts)), torch.from_numpy(np.diff(ends))
    ).to(DEVICE)
    input_batch = SimpleNamespace(
        num_reqs=len(drafts),
        cu_num_logits=torch.from_numpy(ends).to(DEVICE),
        cu_num_logits_np=ends,
        idx_mapping=context.idx_mapping,
        idx_mapping_np=context.idx_mapping_np,
        expanded_idx_mapping=context.expanded_idx_mapping,
        expanded_local_pos=context.expanded_local_pos,
        seq_lens=seq_lens.to(DEVICE),
        seq_lens_cpu_upper_bound=seq_lens,
        input_ids=context.input_ids,
        positions=starts[request_of_row] + context.expanded_local_pos,
        logits_indices=torch.arange(num_rows, device=DEVICE),
    )
    sampler: Any = batch.state
    output = RejectionSampler(sampler, config, DEVICE)(logits, input_batch)
    return [
        tokens[:num_sampled]
        for tokens, num_sampled in zip(
            output.sampled_token_ids.tolist(), output.num_sampled.tolist()
        )
    ]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("masking", [False, True], ids=["plain", "beside-min-p"])
@pytest.mark.parametrize(
    ("drafts", "sampled"),
    [
        pytest.param([WORD, WORD, WORD], [WORD, SO], id="rejected-at-the-edge"),
        pytest.param([WORD, SO, FAR], [WORD, SO, FAR, END], id="accepted-to-the-end"),
        pytest.param([WORD, SO, WORD], [WORD, SO, FAR], id="rejected-in-the-window"),
        pytest.param([WORD], [WORD, SO], id="after-the-last-draft"),
    ],
)
def test_a_limit_that_is_due_later_is_forced_by_the_rejection_sampler(
    drafts, sampled, masking, temperature
):
    """Whether a request could be forced is not known when it is added: what the
    rejection sampler makes of it then may skip no forced token."""
    late = request_of(PHRASE_FIRST, [THINK, WORD], close_len=3)
    params = SamplingParams(temperature=temperature)
    params._reasoning_close_len = late.close_len
    batch = _sampled(late, params, WIDE_VOCAB_SIZE)
    if masking:
        batch.add(request_of(PHRASE_FIRST, [WORD]), SamplingParams(min_p=0.5))
    batch.apply_staged_writes()

    late.output += [WORD, WORD]
    batch.commit()
    every_draft = [drafts, [WORD]][: len(batch.requests)]
    num_rows = sum(1 + len(ids) for ids in every_draft)
    logits = torch.zeros(num_rows, WIDE_VOCAB_SIZE, device=DEVICE)
    # The model would go on thinking.
    logits[:, WORD] = 100.0
    assert _verify(batch, every_draft, logits)[0] == sampled
