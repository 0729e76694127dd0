# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Where the answer reserve closes, once the prompt and the markers are known."""

from tools.fork.edits import (
    after_def,
    after_import,
    after_statement,
    before_statement,
)

with after_import("vllm.v1.kv_hints"):
    from vllm.v1.sample.reasoning_limits import effective_max_tokens, reserve_close_len


class InputProcessor:
    with after_def("apply_watermarking"):

        def _validate_answer_reserve(self, answer_reserve: int) -> None:
            """Refuse a reserve that this engine's markers cannot honour.

            Raises:
                VLLMValidationError: If reasoning is not enabled, or if the
                    forced reasoning end alone would use the reserve up.
            """
            reasoning_config = self.vllm_config.reasoning_config
            if reasoning_config is None or not reasoning_config.enabled:
                raise VLLMValidationError(
                    "reasoning_answer_reserve is set but reasoning_config is not "
                    "configured. Please set --reasoning-parser and/or "
                    "--reasoning-config to use reasoning_answer_reserve.",
                    parameter="reasoning_answer_reserve",
                    value=answer_reserve,
                )
            num_close_tokens = len(reasoning_config.reasoning_end_token_ids)
            if answer_reserve <= num_close_tokens:
                raise VLLMValidationError(
                    "reasoning_answer_reserve must be more than the "
                    f"{num_close_tokens} token(s) of the forced reasoning end, got "
                    f"{answer_reserve}: the close alone would use it up. Raise it.",
                    parameter="reasoning_answer_reserve",
                    value=answer_reserve,
                )

        def _resolve_answer_reserve(
            self, params: SamplingParams, prompt_len: int
        ) -> None:
            """Store where the reserve closes on request-local params."""
            if not params.reasoning_answer_reserve:
                return
            assert params.max_tokens is not None
            reasoning_config = self.vllm_config.reasoning_config
            params._reasoning_close_len = reserve_close_len(
                params.reasoning_answer_reserve,
                effective_max_tokens(
                    params.max_tokens, self.model_config.max_model_len, prompt_len
                ),
                len(reasoning_config.reasoning_end_token_ids),
            )
            if params._reasoning_close_len is None:
                # No room to close a block in: nothing is reserved.
                params.reasoning_answer_reserve = 0

    def _validate_params(self):
        with after_statement(tests="params.thinking_token_budget"):
            if params.reasoning_answer_reserve:
                self._validate_answer_reserve(params.reasoning_answer_reserve)

    def process_inputs(self):
        with before_statement(calls="sampling_params.update_from_generation_config"):
            self._resolve_answer_reserve(sampling_params, prompt_len)
