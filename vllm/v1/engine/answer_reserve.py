# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Settles the answer reserve of a request, once the prompt and the markers are known.

The input processor does it for the Python frontends, and the engine core for a
frontend that knows nothing of the reserve.
"""

from typing import TYPE_CHECKING, Any

from vllm.exceptions import VLLMValidationError
from vllm.v1.sample.reasoning_limits import (
    default_answer_reserve,
    effective_max_tokens,
    reserve_close_len,
)

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.sampling_params import SamplingParams


def validate_answer_reserve(
    params: "SamplingParams", vllm_config: "VllmConfig"
) -> None:
    """Refuse a reserve that an engine cannot honour.

    Args:
        params: Of the request.
        vllm_config: Of the engine.

    Raises:
        VLLMValidationError: If reasoning is not enabled, if the forced reasoning
            end alone would use the reserve up, or if a grammar would have to
            accept tokens of the forced reasoning end.

    """
    answer_reserve = params.reasoning_answer_reserve
    if not answer_reserve:
        return
    reasoning_config = vllm_config.reasoning_config
    if reasoning_config is None or not reasoning_config.enabled:
        raise VLLMValidationError(
            "reasoning_answer_reserve is set but reasoning_config is not configured. "
            "Please set --reasoning-parser and/or --reasoning-config to use "
            "reasoning_answer_reserve.",
            parameter="reasoning_answer_reserve",
            value=answer_reserve,
        )
    forced_end = reasoning_config.reasoning_end_token_ids
    natural_end = reasoning_config.natural_reasoning_end_token_ids
    assert forced_end is not None and natural_end is not None
    num_close_tokens = len(forced_end)
    if answer_reserve <= num_close_tokens:
        raise VLLMValidationError(
            f"reasoning_answer_reserve must be more than the {num_close_tokens} "
            f"token(s) of the forced reasoning end, got {answer_reserve}: the close "
            "alone would use it up. Raise it.",
            parameter="reasoning_answer_reserve",
            value=answer_reserve,
        )

    ends_with_natural_end = forced_end[-len(natural_end) :] == natural_end
    if params.structured_outputs is not None and (
        vllm_config.structured_outputs_config.enable_in_reasoning
        or not ends_with_natural_end
    ):
        raise VLLMValidationError(
            "reasoning_answer_reserve is not supported with structured outputs when "
            f"the grammar covers the forced reasoning end, got {answer_reserve}. Turn "
            "enable_in_reasoning off and let reasoning_end_str end with the parser's "
            "own reasoning end.",
            parameter="reasoning_answer_reserve",
            value=answer_reserve,
        )


def resolve_answer_reserve(
    params: "SamplingParams", prompt_len: int, vllm_config: "VllmConfig"
) -> None:
    """Store on a request's own params where its reserve closes an open block.

    Args:
        params: Of the request, changed in place; `max_tokens` is set.
        prompt_len: Tokens of its prompt.
        vllm_config: Of the engine.

    """
    reasoning_config = vllm_config.reasoning_config
    default: Any = getattr(reasoning_config, "answer_reserve", None)
    is_default = params.reasoning_answer_reserve is None
    if is_default and (
        not isinstance(default, (int, float)) or params.trace_decode_token_ids
    ):
        return
    assert params.max_tokens is not None
    num_output_tokens = effective_max_tokens(
        params.max_tokens, vllm_config.model_config.max_model_len, prompt_len
    )
    if is_default:
        params.reasoning_answer_reserve = default_answer_reserve(
            default, num_output_tokens
        )
        # Raw text holds no block unless a start marker says so, whatever the parser
        # takes output to begin with.
        params._reasoning_needs_start_marker = not params._from_chat_template
        try:
            validate_answer_reserve(params, vllm_config)
            params._verify_reasoning_answer_reserve()
        except VLLMValidationError:
            # A default makes no request fail.
            params.reasoning_answer_reserve = 0
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
