// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project
//
// The operators of the CPU model runner V2 that a vLLM compiled for x86 leaves
// out. Their sources come from the source distribution (csrc/cpu on the include
// path); PyTorch infers the schemas from the functions.

#include "block_table.cpp"
#include "input_batch.cpp"
#include "sampling_kernels.cpp"

#include <torch/library.h>

#define RUNNER_OPERATOR(name) m.def(#name, &cpu_utils::name)
#define SAMPLING_OPERATOR(name) m.def(#name, &::name)

TORCH_LIBRARY_FRAGMENT(_C, m) {
  RUNNER_OPERATOR(gather_block_table_cpu);
  RUNNER_OPERATOR(compute_slot_mapping_cpu);
  RUNNER_OPERATOR(prepare_prefill_inputs_cpu);
  RUNNER_OPERATOR(get_prompt_logprobs_token_ids_cpu);
  RUNNER_OPERATOR(prepare_pos_seq_lens_cpu);
  RUNNER_OPERATOR(prepare_mrope_positions_cpu);
  RUNNER_OPERATOR(combine_sampled_and_draft_tokens_cpu);
  RUNNER_OPERATOR(post_update_cpu);
  SAMPLING_OPERATOR(gumbel_sample_cpu);
  SAMPLING_OPERATOR(apply_logit_bias_cpu);
}
