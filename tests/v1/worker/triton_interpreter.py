# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Model runner V2's Triton kernels on a machine without a GPU.

Triton decides when it is imported whether kernels are interpreted, and vLLM
whether there is a Triton. So this comes first in a process of its own: a script
calls `enable`, pytest loads this module as a plugin (`run_pytest`).
"""

import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[3]
_IS_PLUGIN = "INTERPRET_TRITON_KERNELS"


def enable() -> None:
    """Have Triton kernels interpreted on the CPU.

    Raises:
        RuntimeError: Triton or vLLM was imported before.

    """
    early = {"triton", "vllm"} & sys.modules.keys()
    if early:
        raise RuntimeError(f"too late: {', '.join(sorted(early))} is imported already")
    os.environ["TRITON_INTERPRET"] = "1"

    from triton.backends import backends

    # vLLM's CPU build takes Triton for usable where it has a CPU backend.
    backends.setdefault("cpu", SimpleNamespace(compiler=None, driver=None))

    # What vLLM's CPU worker does for model runner V2 on a device without streams,
    # events and pinned memory.
    import vllm.v1.worker.cpu.shm  # noqa: F401


def run_python(
    *args: str,
    timeout: float = 900,
    exit_codes: Collection[int] = (0,),
    env: Mapping[str, str] | None = None,
) -> str:
    """Run Python at the root of the checkout.

    Args:
        args: Command line.
        timeout: Seconds.
        exit_codes: What it may end with.
        env: Environment variables to add.

    Returns:
        What it wrote to standard output.

    Raises:
        AssertionError: It ended otherwise; the message holds its output.

    """
    done = subprocess.run(
        [sys.executable, *args],
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    output = f"{done.stdout[-20_000:]}\n{done.stderr[-20_000:]}"
    assert done.returncode in exit_codes, output
    return done.stdout


def run_pytest(*args: str, exit_codes: Collection[int] = (0,)) -> str:
    """Run pytest in a process of its own, with interpreted kernels without a GPU."""
    from vllm.triton_utils import HAS_TRITON

    options = ("-q", "-rA", "-p", "no:cacheprovider")
    plugin: tuple[str, ...] = ()
    env = {}
    if not HAS_TRITON:
        plugin = ("-p", __name__)
        env = {_IS_PLUGIN: "1"}
    return run_python(
        "-m", "pytest", *plugin, *options, *args, exit_codes=exit_codes, env=env
    )


if os.environ.get(_IS_PLUGIN):
    enable()
