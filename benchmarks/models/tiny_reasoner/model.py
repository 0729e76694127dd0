# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The Qwen3 architecture, small, for training; parameters carry Qwen3's names."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

HIDDEN, LAYERS, FEED_FORWARD = 128, 5, 384
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 32
ROPE_THETA, NORM_EPS, MAX_POSITION = 10_000.0, 1e-6, 1024


def hf_config(vocab_size: int, eos: int | None, pad: int | None) -> dict:
    """The `config.json` of this architecture."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": vocab_size,
        "hidden_size": HIDDEN,
        "intermediate_size": FEED_FORWARD,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "rms_norm_eps": NORM_EPS,
        "rope_theta": ROPE_THETA,
        "rope_parameters": {"rope_type": "default", "rope_theta": ROPE_THETA},
        "max_position_embeddings": MAX_POSITION,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "use_sliding_window": False,
        "tie_word_embeddings": True,
        "eos_token_id": eos,
        "pad_token_id": pad,
        "bos_token_id": None,
        "dtype": "bfloat16",
    }


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of `x` [batch, heads, length, head_dim]."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
        self.k_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
        self.v_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)
        self.q_norm = nn.RMSNorm(HEAD_DIM, eps=NORM_EPS)
        self.k_norm = nn.RMSNorm(HEAD_DIM, eps=NORM_EPS)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, _ = x.shape

        def heads(projected: Tensor) -> Tensor:
            return projected.view(batch, length, -1, HEAD_DIM)

        query = self.q_norm(heads(self.q_proj(x))).transpose(1, 2)
        key = self.k_norm(heads(self.k_proj(x))).transpose(1, 2)
        value = heads(self.v_proj(x)).transpose(1, 2)
        query, key = _rotate(query, cos, sin), _rotate(key, cos, sin)
        repeats = HEADS // KV_HEADS
        mixed = F.scaled_dot_product_attention(
            query,
            key.repeat_interleave(repeats, dim=1),
            value.repeat_interleave(repeats, dim=1),
            is_causal=True,
        )
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(HIDDEN, FEED_FORWARD, bias=False)
        self.up_proj = nn.Linear(HIDDEN, FEED_FORWARD, bias=False)
        self.down_proj = nn.Linear(FEED_FORWARD, HIDDEN, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.self_attn = Attention()
        self.mlp = MLP()
        self.input_layernorm = nn.RMSNorm(HIDDEN, eps=NORM_EPS)
        self.post_attention_layernorm = nn.RMSNorm(HIDDEN, eps=NORM_EPS)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab_size, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(HIDDEN, eps=NORM_EPS)


class TinyReasoner(nn.Module):
    """A causal language model whose output layer is its embedding."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.model = Decoder(vocab_size)
        frequency = ROPE_THETA ** -(torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        angle = torch.outer(torch.arange(MAX_POSITION), frequency).repeat(1, 2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                outputs = name.endswith(("o_proj.weight", "down_proj.weight"))
                depth = (2 * LAYERS) ** -0.5 if outputs else 1.0
                nn.init.normal_(parameter, std=depth * parameter.shape[1] ** -0.5)
        nn.init.normal_(self.model.embed_tokens.weight, std=0.05)

    def hidden(self, ids: Tensor) -> Tensor:
        """Final hidden states [batch, length, HIDDEN] of `ids` [batch, length]."""
        x = self.model.embed_tokens(ids)
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return self.model.norm(x)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits [batch, length, vocab_size]."""
        return F.linear(self.hidden(ids), self.model.embed_tokens.weight)
