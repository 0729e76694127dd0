# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Interpreted kernels take more than the compiler does; so it is asked as well."""

from tests.v1.worker.triton_interpreter import run_python

SCRIPT = "benchmarks/kernels/benchmark_reasoning_limits.py"


def test_the_kernel_compiles_for_gpus_that_are_not_here(tmp_path):
    out = run_python(SCRIPT, "--compile-only", env={"TRITON_CACHE_DIR": str(tmp_path)})
    targets = [line.split(": ")[0] for line in out.splitlines()]
    assert targets == ["cuda:80", "cuda:90", "hip:gfx942"]


def test_the_kernel_benchmark_runs_and_agrees_with_the_reference(tmp_path):
    table = tmp_path / "table.md"
    env = {"TRITON_INTERPRET": "1"}
    out = run_python(SCRIPT, "--smoke", "--output", str(table), env=env)
    assert "rows are as the reference says" in out
    assert len(table.read_text().splitlines()) == 4 + 2 + 8
