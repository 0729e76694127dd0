# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Async scheduling in a running engine on a CPU, and what its steps wait for.

vLLM's CPU platform turns async scheduling off, and a copy within one memory has
arrived as soon as it is asked for. Here it stays on, and the sampled token ids of
a step reach the host as late as they do from a device: while the next step
samples they can be waited for, but not read.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from vllm.platforms import current_platform


@dataclass
class Step:
    """What one sampling step did."""

    waits: int = 0
    """Events of the device that it waited for."""
    operations: Counter[str] = field(default_factory=Counter)
    """Its operations on tensors, and its kernels."""


class Steps(list[Step]):
    """The sampling steps of an engine, the current one last."""

    @contextmanager
    def record(self) -> Iterator[None]:
        self.append(Step())
        with _Recorder(self[-1].operations):
            yield


class _Recorder(TorchDispatchMode):
    def __init__(self, operations: Counter[str]) -> None:
        super().__init__()
        self.operations = operations

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operations[str(func)] += 1
        return func(*args, **(kwargs or {}))


class _LateCopy:
    """Token ids on their way to the host, and the event of their copy."""

    def __init__(self, token_ids: torch.Tensor, steps: Steps) -> None:
        self.token_ids, self.steps, self.arrived = token_ids, steps, False
        self._rows = token_ids.tolist()

    def synchronize(self) -> None:
        if not self.arrived:
            self.steps[-1].waits += 1
            self.arrived = True

    def tolist(self) -> list:
        assert self.arrived, "token ids are read before their copy has arrived"
        return [row.copy() for row in self._rows]


@contextmanager
def stays_on() -> Iterator[None]:
    """Engines that ask for async scheduling get it."""
    platform = type(current_platform)
    check_and_update_config = platform.check_and_update_config

    def check(cls, vllm_config):
        asked = vllm_config.scheduler_config.async_scheduling
        check_and_update_config(vllm_config)
        vllm_config.scheduler_config.async_scheduling = asked

    with mock.patch.object(platform, "check_and_update_config", classmethod(check)):
        yield


@contextmanager
def late_token_ids() -> Iterator[Steps]:
    """With model runner V1 sampled token ids are late; yields the steps."""
    from vllm.v1.worker import gpu_model_runner as module

    steps = Steps()
    sample = module.GPUModelRunner._sample
    draft_token_ids = module.GPUModelRunner._get_draft_token_ids_cpu
    samples = False

    def recorded_sample(*args, **kwargs):
        nonlocal samples
        samples = True
        with steps.record():
            output = sample(*args, **kwargs)
        samples = False
        return output

    def awaited_draft_token_ids(*args, **kwargs):
        # The scheduler asks for them too, outside of a sampling step.
        if samples:
            steps[-1].waits += 1
        return draft_token_ids(*args, **kwargs)

    class LateOutput(module.AsyncGPUModelRunnerOutput):
        def __init__(self, *args, **kwargs) -> None:
            super().__init__(*args, **kwargs)
            self.copy = _LateCopy(self.sampled_token_ids_cpu, steps)
            self.sampled_token_ids_cpu = self.async_copy_ready_event = self.copy

        def get_output(self):
            # The engine asks for the output once it has begun the next step.
            self.copy.arrived = True
            self.sampled_token_ids_cpu = self.copy.token_ids
            return super().get_output()

    with (
        mock.patch.object(module, "AsyncGPUModelRunnerOutput", LateOutput),
        mock.patch.object(module.GPUModelRunner, "_sample", recorded_sample),
        mock.patch.object(
            module.GPUModelRunner, "_get_draft_token_ids_cpu", awaited_draft_token_ids
        ),
    ):
        yield steps


@contextmanager
def interpreted_steps() -> Iterator[Steps]:
    """With model runner V2 under the Triton interpreter; yields the steps."""
    from triton.runtime.interpreter import GridExecutor

    from vllm.v1.worker.gpu import model_runner as module

    steps = Steps()
    launch, sample = GridExecutor.__call__, module.GPUModelRunner.sample_tokens
    get_output = module.AsyncOutput.get_output
    is_output_awaited = False

    class Event(torch.cuda.Event):
        def __init__(self, *args, **kwargs) -> None:
            super().__init__(*args, **kwargs)
            event: Any = self
            event.synchronize = self.count

        def count(self) -> None:
            if steps and not is_output_awaited:
                steps[-1].waits += 1

    def counted_launch(executor, *args, **kwargs):
        if steps:
            steps[-1].operations[executor.fn.__name__] += 1
        return launch(executor, *args, **kwargs)

    def recorded_sample(*args, **kwargs):
        with steps.record():
            return sample(*args, **kwargs)

    def awaited_output(output):
        # Each step waits for an output: the one of the step before.
        nonlocal is_output_awaited
        is_output_awaited = True
        try:
            return get_output(output)
        finally:
            is_output_awaited = False

    with (
        mock.patch.object(torch.cuda, "Event", Event),
        mock.patch.object(GridExecutor, "__call__", counted_launch),
        mock.patch.object(module.GPUModelRunner, "sample_tokens", recorded_sample),
        mock.patch.object(module.AsyncOutput, "get_output", awaited_output),
    ):
        yield steps
