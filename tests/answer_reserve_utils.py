# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What the answer reserve tests share: the embedded model and how it is served."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from packaging.version import Version

if TYPE_CHECKING:
    from vllm import LLM

TINY_REASONER = os.environ.get("VLLM_TEST_TINY_REASONER") or str(
    Path(__file__).parents[1] / "benchmarks" / "models" / "tiny_reasoner"
)
"""The embedded model, or another build of it."""

MAX_MODEL_LEN = 512

# Asked of the metadata: some tests need a process that has not imported vLLM yet.
HAS_RUNNER_V1 = Version(version("vllm")) < Version("0.34")

ENGINE_ENV = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    # The engine runs in the process of the tests.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}
if HAS_RUNNER_V1:
    # The rules are the same on both model runners; V1 runs on any device.
    ENGINE_ENV["VLLM_USE_V2_MODEL_RUNNER"] = "0"

ENGINE_OPTIONS: dict[str, Any] = {
    "dtype": "float32",
    "enforce_eager": True,
    "max_model_len": MAX_MODEL_LEN,
    "gpu_memory_utilization": 0.1,
    "num_gpu_blocks_override": 256,
    "reasoning_parser": "qwen3",
    "seed": 0,
}


def ngram(num_drafts: int) -> dict[str, Any]:
    """Engine options of speculative decoding without a second model."""
    return {
        "speculative_config": {
            "method": "ngram",
            "num_speculative_tokens": num_drafts,
            "prompt_lookup_min": 1,
            "prompt_lookup_max": 3,
        }
    }


def skip_unless_supported(options: Mapping[str, Any]) -> None:
    """Skip a test whose engine options this vLLM refuses on this device."""
    from vllm.platforms import current_platform

    # Before 0.34 there is no such runner to ask for.
    is_standalone = getattr(
        type(current_platform), "uses_standalone_cpu_model_runner", bool
    )
    if "speculative_config" in options and is_standalone():
        pytest.skip("the model runner for CPUs without Triton takes no drafts")


def forced_end(llm: "LLM") -> list[int]:
    """The tokens that close a block of an engine."""
    config: Any = llm.llm_engine.vllm_config.reasoning_config
    return config.reasoning_end_token_ids


def is_block_open(token_ids: Sequence[int], exit_token_ids: Sequence[int]) -> bool:
    """Whether reasoning that began with the output is still open after it."""
    return not set(exit_token_ids).intersection(token_ids)


def free_port() -> int:
    """A port of this machine that nothing listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextmanager
def serving(
    command: Sequence[str],
    port: int,
    env: Mapping[str, str],
    log_path: Path,
    start_timeout_s: float = 600,
) -> Iterator[str]:
    """Run a server until the block ends; yields its address once it is healthy."""
    with open(log_path, "w") as log:
        process = subprocess.Popen(
            command, env=env, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        address = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + start_timeout_s
        while True:
            try:
                if httpx.get(f"{address}/health", timeout=5).is_success:
                    break
            except httpx.TransportError:
                pass
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"no server:\n{log_path.read_text()[-4000:]}")
            time.sleep(0.5)
        yield address
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
