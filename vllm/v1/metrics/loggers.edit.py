# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Metrics of limited reasoning where reasoning is enabled.

How often a limit fires, and on what, is how an operator chooses it.

Goes when upstream counts what closed reasoning blocks.
"""

from tools.fork.edits import after_import, after_statement, at_start, inside

with after_import("vllm.v1.metrics.prometheus"):
    from vllm.v1.metrics.reasoning import ReasoningProm


class PrometheusStatLogger:
    def __init__(self):
        with after_statement(assigns="self.histogram_max_tokens_request"):
            reasoning_config = vllm_config.reasoning_config
            self.reasoning_prom: ReasoningProm | None = None
            if reasoning_config is not None and reasoning_config.enabled:
                self.reasoning_prom = ReasoningProm(
                    self._counter_cls,
                    self._histogram_cls,
                    labelnames,
                    per_engine_labelvalues,
                    request_tokens_buckets,
                )

    def record(self):
        with inside(loops="iteration_stats.finished_requests"), at_start():
            if self.reasoning_prom is not None:
                self.reasoning_prom.observe(
                    finished_request.reasoning_outcome, engine_idx
                )
