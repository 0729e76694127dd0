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
    from vllm.v1.sample.reasoning_limits import (
        default_answer_reserve,
        effective_max_tokens,
        reserve_close_len,
    )


class InputProcessor:
    with after_def("apply_watermarking"):

        def validate_answer_reserve(self, params: SamplingParams) -> None:
            """Refuse a reserve that this engine cannot honour.

            A server calls it as well before it begins to stream, while it can
            still answer with an error status.

            Raises:
                VLLMValidationError: If reasoning is not enabled, if the forced
                    reasoning end alone would use the reserve up, or if a grammar
                    would have to accept tokens of the forced reasoning end.

            """
            answer_reserve = params.reasoning_answer_reserve
            if not answer_reserve:
                return
            reasoning_config = self.vllm_config.reasoning_config
            if reasoning_config is None or not reasoning_config.enabled:
                raise VLLMValidationError(
                    "reasoning_answer_reserve is set but reasoning_config is not "
                    "configured. Please set --reasoning-parser and/or "
                    "--reasoning-config to use reasoning_answer_reserve.",
                    parameter="reasoning_answer_reserve",
                    value=answer_reserve,
                )
            forced_end = reasoning_config.reasoning_end_token_ids
            natural_end = reasoning_config.natural_reasoning_end_token_ids
            assert forced_end is not None and natural_end is not None
            num_close_tokens = len(forced_end)
            if answer_reserve <= num_close_tokens:
                raise VLLMValidationError(
                    "reasoning_answer_reserve must be more than the "
                    f"{num_close_tokens} token(s) of the forced reasoning end, got "
                    f"{answer_reserve}: the close alone would use it up. Raise it.",
                    parameter="reasoning_answer_reserve",
                    value=answer_reserve,
                )

            ends_with_natural_end = forced_end[-len(natural_end) :] == natural_end
            if params.structured_outputs is not None and (
                self.structured_outputs_config.enable_in_reasoning
                or not ends_with_natural_end
            ):
                raise VLLMValidationError(
                    "reasoning_answer_reserve is not supported with structured outputs "
                    "when the grammar covers the forced reasoning end, got "
                    f"{answer_reserve}. Turn enable_in_reasoning off and let "
                    "reasoning_end_str end with the parser's own reasoning end.",
                    parameter="reasoning_answer_reserve",
                    value=answer_reserve,
                )

        def _resolve_answer_reserve(
            self,
            params: SamplingParams,
            prompt_len: int,
        ) -> None:
            """Store where the reserve closes on request-local params."""
            reasoning_config = self.vllm_config.reasoning_config
            default: Any = getattr(reasoning_config, "answer_reserve", None)
            is_default = params.reasoning_answer_reserve is None
            if is_default and (
                not isinstance(default, (int, float)) or params.trace_decode_token_ids
            ):
                return
            assert params.max_tokens is not None
            num_output_tokens = effective_max_tokens(
                params.max_tokens, self.model_config.max_model_len, prompt_len
            )
            if is_default:
                self._apply_default_answer_reserve(params, num_output_tokens, default)
            if not params.reasoning_answer_reserve:
                return
            assert reasoning_config is not None
            forced_end = reasoning_config.reasoning_end_token_ids
            assert forced_end is not None
            params._reasoning_close_len = reserve_close_len(
                params.reasoning_answer_reserve, num_output_tokens, len(forced_end)
            )
            if params._reasoning_close_len is None:
                # No room to close a block in: nothing is reserved.
                params.reasoning_answer_reserve = 0

        def _apply_default_answer_reserve(
            self, params: SamplingParams, num_output_tokens: int, default: int | float
        ) -> None:
            """Reserve the default, except where a reserve would be refused.

            Raw text holds no block unless a start marker says so, whatever the
            parser takes output to begin with.
            """
            params._reasoning_needs_start_marker = not params._from_chat_template
            params.reasoning_answer_reserve = default_answer_reserve(
                default, num_output_tokens
            )
            try:
                self.validate_answer_reserve(params)
                params._verify_reasoning_answer_reserve()
            except VLLMValidationError:
                params.reasoning_answer_reserve = 0

    def _validate_params(self):
        with after_statement(tests="params.thinking_token_budget"):
            self.validate_answer_reserve(params)

    def process_inputs(self):
        with before_statement(calls="sampling_params.update_from_generation_config"):
            self._resolve_answer_reserve(sampling_params, prompt_len)
