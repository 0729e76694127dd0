# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Where completions come from: an engine in this process or a running server.

Both take the same conversations and return token ids, so that everything that
is measured follows from tokens.
"""

import asyncio
import importlib
import os
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from benchmarks.answer_reserve.tasks import Message

TEXT_MARKERS = "text_markers"


@dataclass(frozen=True)
class Completion:
    """One output of a model."""

    prompt_token_ids: list[int]
    token_ids: list[int]
    finish_reason: str


@dataclass(frozen=True)
class Sampling:
    """What all requests of an evaluation share."""

    max_tokens: int
    temperature: float = 0.6
    top_p: float = 1.0
    top_k: int = 0
    repetition_penalty: float = 1.0


@dataclass(frozen=True)
class EngineOptions:
    """What an engine, or the tokenizer of a server, is started with."""

    model: str
    reasoning_parser: str = "qwen3"
    reasoning_end_str: str = ""
    """Forced to close a block; the parser's own end where empty."""
    overrides: dict[str, Any] = field(default_factory=dict)
    """Arguments of `vllm.LLM`."""

    def reasoning_config(self):
        from vllm.config.reasoning import ReasoningConfig

        if self.reasoning_parser == TEXT_MARKERS:
            importlib.import_module("benchmarks.answer_reserve.text_markers")
        return ReasoningConfig(
            reasoning_parser=self.reasoning_parser,
            reasoning_end_str=self.reasoning_end_str,
        )


class Client(Protocol):
    """Generates completions of conversations."""

    tokenizer: Any
    reasoning_config: Any
    max_model_len: int

    def generate(
        self,
        conversations: Sequence[list[Message]],
        seeds: Sequence[int],
        sampling: Sampling,
        reserve: int | None,
    ) -> list[Completion]:
        """Complete conversations as one batch.

        Args:
            conversations: One for each request.
            seeds: The sampling seed of each request.
            sampling: What all requests share.
            reserve: `reasoning_answer_reserve` in tokens; unset if None.

        Returns:
            A completion for each conversation, in order.

        """
        ...


class EngineClient:
    """An engine in this process."""

    def __init__(self, options: EngineOptions, max_num_seqs: int) -> None:
        # Requests are added before the first step and in one process, so that
        # every run schedules them the same way.
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        from vllm import LLM
        from vllm.platforms import current_platform

        defaults: dict[str, Any] = {"max_num_seqs": max_num_seqs}
        if current_platform.is_cpu():
            os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
            # The share is checked against free memory, which the cache's size
            # above does not depend on. The budget lets every prompt start whole:
            # a chunked prefill draws from the requests' generators in between.
            defaults |= {
                "dtype": "float32",
                "enforce_eager": True,
                "gpu_memory_utilization": 0.1,
                "max_num_batched_tokens": 16384,
            }
        self._llm = LLM(
            options.model,
            reasoning_parser=options.reasoning_parser,
            reasoning_config=options.reasoning_config(),
            seed=0,
            **(defaults | options.overrides),
        )
        config = self._llm.llm_engine.vllm_config
        self.tokenizer = self._llm.get_tokenizer()
        self.reasoning_config = config.reasoning_config
        self.max_model_len: int = config.model_config.max_model_len

    def generate(
        self,
        conversations: Sequence[list[Message]],
        seeds: Sequence[int],
        sampling: Sampling,
        reserve: int | None,
    ) -> list[Completion]:
        from vllm import SamplingParams

        limit: dict[str, Any] = {}
        if reserve is not None:
            limit["reasoning_answer_reserve"] = reserve
        params = [
            SamplingParams(
                # Greedy decoding draws nothing.
                seed=seed if sampling.temperature else None,
                skip_special_tokens=False,
                **vars(sampling),
                **limit,
            )
            for seed in seeds
        ]
        messages: list[Any] = list(conversations)
        outputs: list[Any] = self._llm.chat(messages, params, use_tqdm=False)
        return [
            Completion(
                list(request.prompt_token_ids),
                list(request.outputs[0].token_ids),
                request.outputs[0].finish_reason,
            )
            for request in outputs
        ]

    def close(self) -> None:
        """Release the engine, so that another one can be started."""
        from vllm.distributed import cleanup_dist_env_and_memory

        self._llm.llm_engine.engine_core.shutdown()
        del self._llm
        cleanup_dist_env_and_memory()


class ServerClient:
    """A running OpenAI-compatible server of this vLLM."""

    def __init__(self, url: str, options: EngineOptions) -> None:
        from openai import OpenAI

        from vllm.config import ModelConfig

        self._url = url.rstrip("/").removesuffix("/v1") + "/v1"
        served: Any = OpenAI(base_url=self._url, api_key="EMPTY").models.list().data[0]
        self._model = served.id
        model_config = ModelConfig(options.model)
        self.max_model_len: int = served.max_model_len
        self.reasoning_config = options.reasoning_config()
        self.reasoning_config.initialize_token_ids(model_config)
        from vllm.tokenizers import cached_tokenizer_from_config

        self.tokenizer = cached_tokenizer_from_config(model_config)
        self._check_server()

    def _check_server(self) -> None:
        """Check that the server knows the parameter, which others ignore.

        Raises:
            ValueError: If it accepts what this vLLM refuses.

        """
        from openai import BadRequestError, OpenAI

        try:
            OpenAI(base_url=self._url, api_key="EMPTY").chat.completions.create(
                model=self._model,
                messages=[{"role": "user", "content": "1+1"}],
                max_tokens=1,
                extra_body={"reasoning_answer_reserve": -2},
            )
        except BadRequestError:
            return
        raise ValueError(
            f"The server at {self._url} accepts reasoning_answer_reserve=-2, so it "
            "ignores the parameter. Serve the model with this vLLM."
        )

    def generate(
        self,
        conversations: Sequence[list[Message]],
        seeds: Sequence[int],
        sampling: Sampling,
        reserve: int | None,
    ) -> list[Completion]:
        return asyncio.run(self._generate(conversations, seeds, sampling, reserve))

    async def _generate(self, conversations, seeds, sampling, reserve):
        from openai import AsyncOpenAI

        extra = {
            "top_k": sampling.top_k,
            "repetition_penalty": sampling.repetition_penalty,
            "return_token_ids": True,
        }
        if reserve is not None:
            extra["reasoning_answer_reserve"] = reserve
        async with AsyncOpenAI(
            base_url=self._url, api_key="EMPTY", timeout=None
        ) as client:
            responses: list[Any] = await asyncio.gather(
                *(
                    client.chat.completions.create(
                        model=self._model,
                        messages=conversation,
                        max_tokens=sampling.max_tokens,
                        temperature=sampling.temperature,
                        top_p=sampling.top_p,
                        seed=seed,
                        extra_body=extra,
                    )
                    for conversation, seed in zip(conversations, seeds, strict=True)
                )
            )
        return [
            Completion(
                response.prompt_token_ids,
                response.choices[0].token_ids,
                response.choices[0].finish_reason,
            )
            for response in responses
        ]

    def close(self) -> None:
        """Nothing to release: the server goes on."""


@contextmanager
def open_client(options: EngineOptions, batch_size: int, server: str | None = None):
    """Start an engine, or connect to a server, and release it afterwards."""
    client = (
        ServerClient(server, options) if server else EngineClient(options, batch_size)
    )
    try:
        yield client
    finally:
        client.close()
