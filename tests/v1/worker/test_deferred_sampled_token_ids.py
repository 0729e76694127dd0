# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Async scheduling: which steps wait for the last step's token ids."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch

from vllm.sampling_params import SamplingParams

pytest.importorskip(
    "vllm.v1.worker.gpu_input_batch", reason="this vLLM has no model runner V1"
)

from vllm.v1.worker.gpu_input_batch import CachedRequestState, InputBatch

START, END, PHRASE, FILLER = 90, 91, 92, 7
VOCAB_SIZE = 128
MARKERS = SimpleNamespace(
    reasoning_start_token_ids=[START],
    reasoning_end_token_ids=[PHRASE, END],
    natural_reasoning_end_token_ids=[END],
)


@dataclass
class CopyEvent:
    """The event of a device-to-host copy that arrives one step later."""

    arrived: bool = False
    waits: int = 0

    def synchronize(self) -> None:
        self.waits += not self.arrived


@dataclass
class AsyncLoop:
    """Steps an `InputBatch` as the model runner does under async scheduling."""

    batch: InputBatch = field(
        default_factory=lambda: InputBatch(
            max_num_reqs=8,
            max_model_len=256,
            max_num_batched_tokens=256,
            device=torch.device("cpu"),
            vocab_size=VOCAB_SIZE,
            block_sizes=[16],
            max_num_blocks_per_req=[16],
            reasoning_config=MARKERS,
        )
    )
    requests: dict[str, CachedRequestState] = field(default_factory=dict)
    sampled: dict[str, list[int]] = field(default_factory=dict)
    event: CopyEvent | None = None

    def add(self, req_id: str, prompt: list[int], **params: int) -> None:
        sampling_params = SamplingParams(temperature=0.0, max_tokens=200)
        for name, value in params.items():
            setattr(sampling_params, name, value)
        self.requests[req_id] = CachedRequestState(
            req_id=req_id,
            prompt_token_ids=prompt,
            mm_features=[],
            sampling_params=sampling_params,
            generator=None,
            block_ids=([0],),
            num_computed_tokens=0,
            output_token_ids=list(self.sampled.get(req_id, [])),
        )
        self.sampled.setdefault(req_id, [])
        self.batch.add_request(self.requests[req_id])
        self.batch.refresh_metadata()

    def remove(self, req_id: str) -> None:
        self.batch.remove_request(req_id)
        self.batch.condense()
        self.batch.refresh_metadata()

    def step(self, model_token: int = FILLER) -> int:
        """One step of every request; returns how often it waited for ids."""
        batch, last_event = self.batch, self.event
        batch.update_async_output_token_ids()
        waits = last_event.waits if last_event else 0
        metadata = batch.sampling_metadata
        logits = torch.zeros((batch.num_reqs, VOCAB_SIZE))
        logits[:, model_token] = 1.0
        holder = metadata.thinking_budget_state_holder
        assert holder is not None
        if holder.has_tracked_requests():
            holder.update_state(metadata.output_token_ids, metadata.spec_token_ids)
            holder.apply_to_logits(logits, False, metadata.spec_token_ids)
        token_ids = logits.argmax(dim=1, keepdim=True)

        batch.prev_req_id_to_index = {r: i for i, r in enumerate(batch.req_ids)}
        for index, req_id in enumerate(batch.req_ids):
            self.requests[req_id].output_token_ids.append(-1)
            self.sampled[req_id].append(int(token_ids[index, 0]))
        if last_event:
            last_event.arrived = True
        self.event = CopyEvent()
        batch.set_async_sampled_token_ids(token_ids, self.event)
        return waits


def test_a_reserve_that_is_not_due_waits_for_no_token():
    loop = AsyncLoop()
    loop.add("reserved", [1, START], _reasoning_close_len=20)
    loop.add("plain", [1, START])

    assert [loop.step() for _ in range(20)] == [0] * 20
    # From the edge on the block has to be known.
    assert [loop.step() for _ in range(4)] == [1] * 4
    assert loop.sampled["reserved"][19:23] == [FILLER, PHRASE, END, FILLER]
    assert loop.sampled["plain"] == [FILLER] * 24


def test_a_request_without_limits_never_waits():
    loop = AsyncLoop()
    loop.add("plain", [1, START])
    assert [loop.step() for _ in range(30)] == [0] * 30


def test_a_budget_waits_only_when_it_could_fire():
    loop = AsyncLoop()
    loop.add("budget", [1], thinking_token_budget=5)
    waits = [loop.step(START)] + [loop.step() for _ in range(9)]
    assert loop.sampled["budget"][:8] == [START, *[FILLER] * 5, PHRASE, END]
    assert sum(waits[:6]) == 0 and waits[6:8] == [1, 1]


@pytest.mark.parametrize("penalty", [0.0, 0.5], ids=["limits alone", "with penalties"])
def test_deferring_changes_no_token(penalty: float):
    loop = AsyncLoop()
    loop.add("a", [1, START], _reasoning_close_len=11)
    loop.add("b", [1], thinking_token_budget=3, presence_penalty=penalty)
    loop.add("c", [1])
    for position in range(20):
        loop.step(START if position == 2 else FILLER)
    assert loop.sampled["a"][10:14] == [FILLER, PHRASE, END, FILLER]
    assert loop.sampled["b"][2:8] == [START, FILLER, FILLER, FILLER, PHRASE, END]
    for req_id, request in loop.requests.items():
        known = [t for t in request.output_token_ids if t != -1]
        if req_id != "c":
            assert known == loop.sampled[req_id][: len(known)]
            assert len(known) >= len(loop.sampled[req_id]) - 2


def test_a_resumed_request_takes_no_token_of_before():
    loop = AsyncLoop()
    loop.add("other", [1, START], _reasoning_close_len=40)
    loop.add("resumed", [1, START], _reasoning_close_len=12)
    for _ in range(6):
        loop.step()
    loop.remove("resumed")
    loop.step()
    loop.add("resumed", [1, START], _reasoning_close_len=12)
    for _ in range(10):
        loop.step()
    assert loop.sampled["resumed"] == [FILLER] * 12 + [PHRASE, END, FILLER, FILLER]
    assert (
        loop.requests["resumed"].output_token_ids[:14] == (loop.sampled["resumed"][:14])
    )


def test_requests_without_limits_go_on_when_the_last_one_with_a_limit_leaves():
    loop = AsyncLoop()
    loop.add("reserved", [1, START], _reasoning_close_len=40)
    loop.add("plain", [1, START])
    for _ in range(3):
        loop.step()
    loop.remove("reserved")
    assert [loop.step() for _ in range(3)] == [0] * 3
    # Another one joins: what was not needed stays unknown and does no harm.
    loop.add("reserved too", [1, START], _reasoning_close_len=4)
    for _ in range(7):
        loop.step()
    assert loop.sampled["plain"] == [FILLER] * 13
    assert loop.sampled["reserved too"] == [FILLER] * 4 + [PHRASE, END, FILLER]
