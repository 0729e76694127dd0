# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A checkpoint whose greedy continuation is known: each word has one successor.

One layer whose attention and MLP add nothing: the hidden state of a token is
its one-hot embedding, and the output layer maps it to the word that follows.
It is an ordinary Llama checkpoint, so that it runs on every path of the engine,
as a draft model too.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from tests.v1.sample.reasoning_limits_reference import Markers, forced_tokens

# Logit of a word's successor; every other one is 0.
SUCCESSOR_LOGIT = 20.0
END_OF_TURN = "<|im_end|>"
UNKNOWN = "<unk>"
SPECIAL_WORDS = ("<unk>", "<|im_start|>", END_OF_TURN)
MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")

_HEAD_DIM, _NUM_HEADS, _NUM_KV_HEADS, _INTERMEDIATE = 32, 4, 2, 64


class Script:
    """Words and the successor of each.

    Args:
        lines: Chains of words: each is followed by the next one of its line. A
            word has the same successor wherever it stands.
        markers: Words that are one token in any text.
        special: Words that the detokenizer leaves out.

    """

    def __init__(
        self,
        lines: Iterable[str],
        markers: Sequence[str] = MARKERS,
        special: Sequence[str] = SPECIAL_WORDS,
    ) -> None:
        self.markers, self.special = markers, special
        self.successors: dict[str, str] = {}
        words = dict.fromkeys((*special, *markers))
        for line in lines:
            chain = line.split()
            words |= dict.fromkeys(chain)
            for word, successor in pairwise(chain):
                if self.successors.setdefault(word, successor) != successor:
                    raise ValueError(f"{word!r} has two successors")
        self.words = list(words)
        self._ids = {word: i for i, word in enumerate(self.words)}

    def ids(self, text: str) -> list[int]:
        """Token ids of a text."""
        return [self._ids[word] for word in text.split()]

    def text(self, token_ids: Iterable[int]) -> str:
        """The words of token ids, markers and special words included."""
        return " ".join(self.words[i] for i in token_ids)

    def next_id(self, token_id: int) -> int:
        """The token that the model puts after another."""
        return self._ids[self.successors.get(self.words[token_id], UNKNOWN)]

    def deviating(self, changes: dict[str, str]) -> "Script":
        """A script of the same words in which some have another successor."""
        other = Script((), self.markers, self.special)
        other.words, other._ids = self.words, self._ids
        other.successors = self.successors | changes
        return other

    def save(self, path: Path, chat_template: str | None = None) -> str:
        """Write the checkpoint and its tokenizer; returns where."""
        path.mkdir(parents=True)
        self._save_tokenizer(path, chat_template)
        # A whole number of heads is as wide as the vocabulary.
        width = max(-(-len(self.words) // 32) * 32, _HEAD_DIM * _NUM_HEADS)
        vocab_size = width
        config = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": vocab_size,
            "hidden_size": width,
            "intermediate_size": _INTERMEDIATE,
            "num_hidden_layers": 1,
            "num_attention_heads": _NUM_HEADS,
            "num_key_value_heads": _NUM_KV_HEADS,
            "head_dim": _HEAD_DIM,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-6,
            "max_position_embeddings": 4096,
            "tie_word_embeddings": False,
            "eos_token_id": self._ids.get(END_OF_TURN),
            "bos_token_id": None,
            "dtype": "float32",
        }
        (path / "config.json").write_text(json.dumps(config))
        generation = {"eos_token_id": self._ids.get(END_OF_TURN)}
        (path / "generation_config.json").write_text(json.dumps(generation))

        # The norm scales a one-hot vector by the root of its width.
        lm_head = torch.zeros(vocab_size, width)
        for token_id in range(len(self.words)):
            lm_head[self.next_id(token_id), token_id] = SUCCESSOR_LOGIT / width**0.5
        layer = "model.layers.0."
        shapes = {
            "self_attn.q_proj": (_NUM_HEADS * _HEAD_DIM, width),
            "self_attn.k_proj": (_NUM_KV_HEADS * _HEAD_DIM, width),
            "self_attn.v_proj": (_NUM_KV_HEADS * _HEAD_DIM, width),
            "self_attn.o_proj": (width, _NUM_HEADS * _HEAD_DIM),
            "mlp.gate_proj": (_INTERMEDIATE, width),
            "mlp.up_proj": (_INTERMEDIATE, width),
            "mlp.down_proj": (width, _INTERMEDIATE),
        }
        weights = {
            "model.embed_tokens.weight": torch.eye(vocab_size, width),
            "model.norm.weight": torch.ones(width),
            "lm_head.weight": lm_head,
            layer + "input_layernorm.weight": torch.ones(width),
            layer + "post_attention_layernorm.weight": torch.ones(width),
        }
        weights |= {
            f"{layer}{name}.weight": torch.zeros(shape)
            for name, shape in shapes.items()
        }
        save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
        return str(path)

    def _save_tokenizer(self, path: Path, chat_template: str | None) -> None:
        tokenizer = Tokenizer(models.WordLevel(self._ids, unk_token=UNKNOWN))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        tokenizer.add_special_tokens(
            [AddedToken(t, special=True) for t in self.special]
        )
        tokenizer.add_tokens(
            [AddedToken(t, special=False, normalized=False) for t in self.markers]
        )
        tokenizer.save(str(path / "tokenizer.json"))
        tokenizer_config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": UNKNOWN,
            "clean_up_tokenization_spaces": False,
        }
        if END_OF_TURN in self._ids:
            tokenizer_config["eos_token"] = END_OF_TURN
        if chat_template is not None:
            tokenizer_config["chat_template"] = chat_template
        (path / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))


def markers(script: Script, forced_end: str, **changes: Any) -> Markers:
    """What the qwen3 parser knows of a script's markers."""
    ids = script.ids
    known: dict[str, Any] = {
        "start": ids("<think>"),
        "forced_end": ids(forced_end),
        "natural_end": ids("</think>"),
        "implicit_ends": [ids("<tool_call>")],
        "turn_boundaries": ids(f"<|im_start|> {END_OF_TURN}"),
        "starts_inside": True,
    }
    return Markers(**(known | changes))


def continuation(
    script: Script,
    known: Markers,
    prompt: list[int],
    num_tokens: int,
    reserve: int | None = None,
    budget: int | None = None,
    stop: Sequence[str] = (),
) -> list[int]:
    """What a script says under the rules, one token at a time.

    Args:
        script: What the model says where nothing is forced.
        known: What the rules are told of the markers.
        prompt: Prompt token ids.
        num_tokens: Output tokens that the request can really produce.
        reserve: Of them, the ones kept for the answer.
        budget: Tokens that a block may hold.
        stop: Words that end the output.

    """
    close_len = None
    if reserve and num_tokens > len(known.forced_end):
        close_len = max(num_tokens - reserve, 0)
    ends = {script.ids(word)[0] for word in (END_OF_TURN, *stop)}
    output: list[int] = []
    while len(output) < num_tokens:
        forced = forced_tokens(known, prompt, output, budget, close_len)[-1]
        last = (prompt + output)[-1]
        output.append(script.next_id(last) if forced is None else forced)
        if output[-1] in ends:
            break
    return output
