# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The reasoning limits of model runner V2 on a device: right, and how fast.

Needs this checkout, torch and Triton; vLLM need not be installed. It first holds
the kernel against the tests' reference on random requests, then times a step
beside upstream's module, if ``--base-module`` names that file
(``vllm/v1/worker/gpu/sample/thinking_budget.py`` of a vLLM release). Each step
commits one token to every request. ``device`` is the time between two events
around ``apply``, ``host`` what the call takes to return; ``first`` is the step
that reads the whole context. Tokens lie in device memory here; vLLM keeps them in
host memory that the device reads.

Without a GPU, ``--compile-only`` compiles for some, and ``--smoke`` under
``TRITON_INTERPRET=1`` runs small sizes.
"""

import argparse
import importlib.util
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

try:
    # Not through vLLM, which a machine with an accelerator need not have.
    import triton
    import triton.language as tl
except ImportError:
    raise SystemExit("This benchmark needs Triton: pip install triton") from None

ROOT = Path(__file__).resolve().parents[2]
FORK_MODULE = ROOT / "vllm/v1/worker/gpu/sample/thinking_budget.py"
LIMITS_MODULE = ROOT / "vllm/v1/sample/reasoning_limits.py"
REFERENCE_MODULE = ROOT / "tests/v1/sample/reasoning_limits_reference.py"

VOCAB_SIZE = 1024
START, END, THOUGHT = 1, 2, 3
FORCED_LOGIT = 1.0e9
TARGETS = {
    "cuda:80": ("cuda", 80, 32),
    "cuda:90": ("cuda", 90, 32),
    "hip:gfx942": ("hip", "gfx942", 64),
}


class MirroredTensor:
    """Stands in for vLLM's ``UvaBackedTensor``: a host array and its device copy."""

    def __init__(self, size: int | Sequence[int], dtype: torch.dtype) -> None:
        self.cpu = torch.zeros(size, dtype=dtype)
        self.np = self.cpu.numpy()
        self.copy_to_uva()

    def copy_to_uva(self) -> torch.Tensor:
        self.gpu = self.cpu.to(device(), copy=True)
        return self.gpu


def device() -> torch.device:
    """Where the kernels run."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _load_file(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@contextmanager
def _stand_ins() -> Iterator[None]:
    """The parts of vLLM that the modules import, without vLLM."""
    contents: dict[str, dict[str, Any]] = {
        "vllm": {},
        "vllm.sampling_params": {"SamplingParams": SimpleNamespace},
        "vllm.triton_utils": {"tl": tl, "triton": triton},
        "vllm.utils": {},
        "vllm.utils.torch_utils": {"async_tensor_h2d": torch.tensor},
        "vllm.v1": {},
        "vllm.v1.sample": {},
        "vllm.v1.worker": {},
        "vllm.v1.worker.gpu": {},
        "vllm.v1.worker.gpu.buffer_utils": {"UvaBackedTensor": MirroredTensor},
        "vllm.v1.worker.gpu.sample": {},
        "vllm.v1.worker.gpu.sample.logits_processor": {
            "LogitsContext": SimpleNamespace
        },
        "vllm.v1.worker.gpu.states": {"RequestState": SimpleNamespace},
    }
    found = {n: m for n, m in sys.modules.items() if n.split(".")[0] == "vllm"}
    for name in found:
        del sys.modules[name]
    for name, content in contents.items():
        module = ModuleType(name)
        module.__dict__.update(content, __path__=[])
        sys.modules[name] = module
    _load_file("vllm.v1.sample.reasoning_limits", LIMITS_MODULE)
    try:
        yield
    finally:
        for name in [n for n in sys.modules if n.split(".")[0] == "vllm"]:
            del sys.modules[name]
        sys.modules.update(found)


def load_module(name: str, path: Path) -> ModuleType:
    """Load a ``thinking_budget`` module from its file.

    Args:
        name: Module name to load it under.
        path: Its file.

    """
    with _stand_ins():
        return _load_file(name, path)


class Batch:
    """Requests in front of a state, as the model runner holds them.

    Args:
        module: The module with the state.
        config: Reasoning config.
        prompts: Prompt tokens of each request.
        outputs: Output tokens of each.
        drafts: Draft tokens of each.
        limits: Budget and output length of the close of each, None where unset.
        num_more: Tokens that each may still get.
        on_host: Whether the host still knows the tokens of the requests.

    """

    def __init__(
        self,
        module: ModuleType,
        config: Any,
        prompts: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int]],
        drafts: Sequence[Sequence[int]],
        limits: Sequence[tuple[int | None, int | None]],
        num_more: int = 0,
        on_host: bool = True,
    ) -> None:
        num_reqs = len(prompts)
        tokens = [[*p, *o] if o else p for p, o in zip(prompts, outputs)]
        # A multiple of 16, as Triton compiles anew where a stride stops being one.
        width = -(-(max(map(len, tokens)) + num_more) // 16) * 16
        all_tokens = torch.full(
            (num_reqs, width), THOUGHT, dtype=torch.int32, device=device()
        )
        copied: dict[int, torch.Tensor] = {}
        for row, ids in zip(all_tokens, tokens):
            if id(ids) not in copied:
                copied[id(ids)] = torch.tensor(ids, dtype=torch.int32, device=device())
            row[: len(ids)] = copied[id(ids)]
        prompt_len = MirroredTensor(num_reqs, torch.int32)
        prompt_len.np[:] = [len(p) for p in prompts]
        prompt_len.copy_to_uva()
        prefill_len = MirroredTensor(num_reqs, torch.int32)
        prefill_len.np[:] = [len(ids) for ids in tokens]
        self.total_len = prefill_len.cpu.to(device(), copy=True)
        all_token_ids = SimpleNamespace(gpu=all_tokens, _staged_write_indices=[])
        self.state = module.ThinkingBudgetState(
            SimpleNamespace(
                max_num_reqs=num_reqs,
                device=device(),
                all_token_ids=all_token_ids,
                total_len=SimpleNamespace(gpu=self.total_len),
                prompt_len=prompt_len,
                prefill_len=prefill_len,
            ),
            config,
        )
        for i, (budget, close_len) in enumerate(limits):
            if on_host:
                all_token_ids._staged_write_indices = [i]
                all_token_ids._staged_write_cu_lens = [len(tokens[i])]
                all_token_ids._staged_write_contents = tokens[i]
            params = SimpleNamespace(
                thinking_token_budget=budget, _reasoning_close_len=close_len
            )
            self.state.add_request(i, params)
        self.state.apply_staged_writes()

        rows = [(i, j) for i, ids in enumerate(drafts) for j in range(1 + len(ids))]
        last = [[ids[-1] if ids else 0, *d] for ids, d in zip(tokens, drafts)]
        slots = torch.arange(num_reqs)
        self.logits = torch.zeros(len(rows), VOCAB_SIZE, device=device())
        self.context = SimpleNamespace(
            expanded_idx_mapping=torch.tensor([i for i, _ in rows], device=device()),
            idx_mapping=slots.to(device()),
            idx_mapping_np=slots.numpy(),
            expanded_local_pos=torch.tensor(
                [j for _, j in rows], dtype=torch.int32, device=device()
            ),
            input_ids=torch.tensor(
                [t for ids in last for t in ids], dtype=torch.int32, device=device()
            ),
            pos=None,
            seq_lens_upper_bound_np=prefill_len.np
            + torch.tensor([len(ids) for ids in drafts]).numpy(),
        )

    def apply(self) -> None:
        self.state.apply(self.logits, self.context)

    def commit_token(self) -> None:
        """One more token in every request."""
        self.total_len += 1
        self.context.seq_lens_upper_bound_np += 1


# --- Is it right? ---------------------------------------------------------------


def check(fork: ModuleType, num_batches: int, num_reqs: int) -> int:
    """Hold the kernel against the reference on random requests.

    Returns:
        The number of rows compared.

    Raises:
        SystemExit: a row differs.

    """
    reference = _load_file("reasoning_limits_reference", REFERENCE_MODULE)
    random = Random(0)
    marker_sets = [
        reference.Markers([1], [2], [2]),
        reference.Markers([1], [4, 5, 2], [2], [[3]], [6]),
        reference.Markers([1, 4], [2, 4, 5], [2], [[3, 3]]),
        reference.Markers([1], [4, 2, 5], [2, 5], [[3]], starts_inside=True),
    ]
    num_rows = 0
    for i in range(num_batches):
        markers = marker_sets[i % len(marker_sets)]
        pieces = [[t] for t in range(8)] + [markers.start, *markers.exits]

        def tokens(max_pieces: int, pieces=pieces) -> list[int]:
            drawn = random.choices(pieces, k=random.randint(0, max_pieces))
            return [token for piece in drawn for token in piece]

        prompts = [tokens(6) for _ in range(num_reqs)]
        outputs = [tokens(12) for _ in range(num_reqs)]
        drafts = [tokens(3)[:4] for _ in range(num_reqs)]
        limits = [
            (random.choice([None, *range(8)]), random.choice([None, *range(16)]))
            for _ in range(num_reqs)
        ]
        batch = Batch(fork, markers.config, prompts, outputs, drafts, limits)
        batch.apply()
        is_forced, token = (batch.logits == FORCED_LOGIT).max(dim=1)
        rows = iter(zip(is_forced.tolist(), token.tolist()))
        for request in zip(prompts, outputs, drafts, limits):
            prompt, output, ids, (budget, close_len) = request
            expected = reference.forced_tokens(
                markers, prompt, output + ids, budget, close_len
            )
            follows = True
            for j, wanted in enumerate(expected[len(output) :]):
                forced, got = next(rows)
                # Behind a draft that is certain to be rejected nothing counts.
                if follows and (got if forced else None) != wanted:
                    raise SystemExit(f"row {j} of {request}: {got}, not {wanted}")
                num_rows += follows
                follows &= j == len(ids) or wanted in (None, ids[j])
    return num_rows


# --- How fast is it? ------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """What one row of the table is about."""

    num_reqs: int
    num_drafts: int
    num_tokens: int
    is_due: bool


def _timed(step: Callable[[], None]) -> tuple[float, float]:
    """Microseconds of a step: on the device, and until the call returned."""
    if device().type == "cpu":
        begin = time.perf_counter()
        step()
        took = (time.perf_counter() - begin) * 1e6
        return took, took
    torch.accelerator.synchronize()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    events[0].record()
    begin = time.perf_counter()
    step()
    host = (time.perf_counter() - begin) * 1e6
    events[1].record()
    events[1].synchronize()
    return events[0].elapsed_time(events[1]) * 1e3, host


def time_case(
    module: ModuleType, case: Case, num_steps: int
) -> list[tuple[float, float]]:
    """Device and host microseconds of each step, the one that reads all first."""
    config = SimpleNamespace(
        reasoning_start_token_ids=[START],
        reasoning_end_token_ids=[END],
        natural_reasoning_end_token_ids=[END],
    )
    prompt = [START] + [THOUGHT] * (case.num_tokens - 1)
    num_more = num_steps + 2

    def batch(num_tokens: int) -> Batch:
        budget = 0 if case.is_due else case.num_tokens + num_more + 8
        return Batch(
            module,
            config,
            [prompt[:num_tokens]] * case.num_reqs,
            [[]] * case.num_reqs,
            [[THOUGHT] * case.num_drafts] * case.num_reqs,
            [(budget, None)] * case.num_reqs,
            num_more,
            on_host=not case.is_due,
        )

    # Compile and warm up on another batch.
    warm_up = batch(8)
    for _ in range(2):
        warm_up.apply()
    timed = batch(case.num_tokens)
    times = []
    for _ in range(1 + num_steps):
        times.append(_timed(timed.apply))
        timed.commit_token()
    return times


def _spread(times: Sequence[float]) -> str:
    """Median and the middle half, in microseconds."""
    low, median, high = statistics.quantiles(times, n=4, method="inclusive")
    return f"{median:.1f} ({low:.1f}-{high:.1f})"


def table(
    modules: dict[str, ModuleType], cases: Sequence[Case], num_steps: int
) -> list[str]:
    """The table in Markdown, row by row as it is measured."""
    lines = [
        (
            "| requests | drafts | context | due | module | device, us | host, us "
            "| first, us |"
        ),
        "|---:|---:|---:|---|---|---:|---:|---:|",
    ]
    print("\n".join(lines))
    for case in cases:
        for name, module in modules.items():
            first, *steps = time_case(module, case, num_steps)
            on_device, on_host = zip(*steps)
            line = (
                f"| {case.num_reqs} | {case.num_drafts} | {case.num_tokens} "
                f"| {'yes' if case.is_due else 'no'} | {name} "
                f"| {_spread(on_device)} | {_spread(on_host)} | {first[0]:.1f} |"
            )
            lines.append(line)
            print(line, flush=True)
    return lines


# --- Does it compile? -----------------------------------------------------------


def compile_for(fork: ModuleType, target: str) -> int:
    """Compile the kernel for a GPU that need not be here.

    Args:
        fork: The fork's module.
        target: Key of `TARGETS`.

    Returns:
        The size of the binary in bytes.

    """
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = fork._thinking_budget_kernel
    constants = {
        "NUM_LIMITS": 3,
        "NUM_SCAN_FIELDS": 7,
        "NUM_EXITS": 3,
        "NUM_TURN_BOUNDARIES": 1,
        "FORCED_END_ROW": 3,
        "NATURAL_END_ROW": 1,
        "STARTS_INSIDE": True,
        "MARKER_BLOCK": 8,
        "SCAN_BLOCK": fork._SCAN_BLOCK,
    }
    special = {"logits_ptr": "*fp32", "expanded_idx_mapping_ptr": "*i64"}
    signature = {
        name: "constexpr"
        if name in constants
        else special.get(name, "*i32" if name.endswith("_ptr") else "i32")
        for name in kernel.arg_names
    }
    source = ASTSource(
        kernel,
        signature,
        {(kernel.arg_names.index(name),): value for name, value in constants.items()},
    )
    compiled = triton.compile(source, target=GPUTarget(*TARGETS[target]))
    return len(compiled.asm["cubin" if target.startswith("cuda") else "hsaco"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base-module", type=Path, help="upstream's module")
    parser.add_argument("--num-steps", type=int, default=100)
    parser.add_argument("--output", type=Path, help="write the table to this file")
    parser.add_argument("--smoke", action="store_true", help="small sizes")
    parser.add_argument("--compile-only", action="store_true")
    args = parser.parse_args()

    modules = {"fork": load_module("fork_thinking_budget", FORK_MODULE)}
    if args.compile_only:
        for target in TARGETS:
            print(f"{target}: {compile_for(modules['fork'], target)} bytes")
        return
    if args.base_module is not None:
        modules["base"] = load_module("base_thinking_budget", args.base_module)
    if device().type == "cpu" and not triton.knobs.runtime.interpret:
        raise SystemExit("no GPU: set TRITON_INTERPRET=1 and add --smoke")

    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "interpreter"
    title = f"{name}, torch {torch.__version__}, Triton {triton.__version__}"
    print(title)
    sizes = (8, 8) if args.smoke else (64, 256)
    print(f"{check(modules['fork'], *sizes)} rows are as the reference says\n")
    axes: tuple[Sequence[Any], ...] = (
        ((1, 2), (0, 4), (64,), (True, False))
        if args.smoke
        else ((1, 64, 256, 1024), (0, 4), (512, 100_000), (True, False))
    )
    cases = [Case(*values) for values in itertools.product(*axes)]
    lines = table(modules, cases, 2 if args.smoke else args.num_steps)
    if args.output is not None:
        text = [title, "", "Median and middle half of the steps.", "", *lines]
        args.output.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
