# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""`reasoning_answer_reserve` in the sampling params of a token request.

A token request holds sampling params; a reserve beside them would be ignored.

Goes when upstream has `reasoning_answer_reserve`.
"""

from tools.fork.edits import (
    after_field,
    after_import,
    after_statement,
    inside,
    merge_import,
)

with merge_import():
    from vllm.entrypoints.generate.base.protocol import refuse_misplaced_answer_reserve
with after_import("vllm.utils"):
    from vllm.v1.sample.reasoning_limits import ReasoningClosedBy


class GenerateRequest:
    def _capture_sampling_params_provided_keys():
        with inside(tests="sp"), after_statement(assigns="provided"):
            if sp.get("reasoning_answer_reserve"):
                # The reserve is not held against a default of max_tokens, and a
                # prefill-only leg is known as such.
                sp = {"max_tokens": None, **sp}
                kv_transfer_params = data.get("kv_transfer_params")
                if kv_transfer_params and not sp.get("extra_args"):
                    sp["extra_args"] = {"kv_transfer_params": kv_transfer_params}
                data = {**data, "sampling_params": sp}

    def _validate_cache_salt():
        with after_statement(calls="validate_cache_salt"):
            refuse_misplaced_answer_reserve(data, "sampling_params")


class GenerateChoiceBase:
    with after_field("stop_reason"):
        reasoning_closed_by: ReasoningClosedBy | None = None
        """What closed the last reasoning block, where the request limits it."""


class GenerateStreamChoiceBase:
    with after_field("stop_reason"):
        reasoning_closed_by: ReasoningClosedBy | None = None
        """Set on the final chunk only, where the request limits its reasoning."""
