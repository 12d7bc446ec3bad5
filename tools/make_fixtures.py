#!/usr/bin/env python3
"""Writes the TorchScript files that the tests of Pipe load, with what they must compute.

For each model NAME two files go to tests/run/pipe/fixtures: NAME.pt, the model as TorchScript, and
NAME.expected.pt, a dict of one training step as this PyTorch computes it (torch.save, which C++
reads with torch::pickle_load):

    inputs     tuple of the positional arguments
    keywords   (name, tensor) of each argument that is given by name
    target     what the loss compares with
    output     tensor, or dict of tensors
    loss       mse_loss(output, target), or the entry "loss" of a dict
    gradients  (name, tensor) of each parameter that got one; a tied one appears once, under its
               first name
    buffers    (name, tensor) of each, after the step

Where there may be a single entry, a tuple of pairs takes the place of a dict, and a tuple that of a
list: libtorch 1.13 cannot unpickle a dict or list of one.

Needs PyTorch 2.5 or newer. The same version writes the same bytes on every run.
"""

import argparse
import os
import pathlib
import sys
import warnings

import torch
from torch import nn
from torch.distributed.pipelining import pipe_split
from torch.nn import functional

SEED = 2718


class KeywordMlp(nn.Module):
    """Linear layers; the second argument is optional and given by name."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 12), nn.GELU(), nn.Linear(12, 4)
        )

    def forward(self, x: torch.Tensor, offset: torch.Tensor | None = None) -> torch.Tensor:
        y = self.layers(x)
        if offset is not None:
            y = y + offset
        return y


class ConvBlock(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return functional.relu(x + self.norm(self.conv(x)))


class ConvNet(nn.Module):
    """Convolutions and batch norms with residual connections."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU())
        self.blocks = nn.Sequential(ConvBlock(6), ConvBlock(6))
        self.head = nn.Linear(6, 5)

    def forward(self, x):
        y = self.blocks(self.stem(x))
        return self.head(y.mean(dim=(2, 3)))


class GptBlock(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(0.0)

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.size(0), x.size(1), x.size(2)
        parts = self.qkv(x).view(rows, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        scores = q.matmul(k.transpose(-2, -1)) / float(width // self.heads) ** 0.5
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = self.dropout(scores.masked_fill(future, float("-inf")).softmax(-1))
        y = weights.matmul(v).transpose(1, 2).reshape(rows, length, width)
        return self.projection(y)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.dropout(self.attend(self.norm1(x)))
        return x + self.dropout(self.down(functional.gelu(self.up(self.norm2(x)))))


class TiedGpt(nn.Module):
    """A small GPT whose head is its embedding: one parameter in the first and in the last layer."""

    def __init__(self, blocks: int = 2, words: int = 11, width: int = 8, length: int = 6):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.position = nn.Parameter(torch.randn(length, width))
        self.blocks = nn.ModuleList([GptBlock(width, 2) for _ in range(blocks)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embedding(words) + self.position[: words.size(1)]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Attention(nn.Module):
    """scaled_dot_product_attention by name, causal and with a mask, and rms_norm."""

    def __init__(self, width: int = 8):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.norm = nn.RMSNorm(width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).view(x.size(0), x.size(1), 2, 12).transpose(1, 2).chunk(3, dim=-1)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y + functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        y = y.transpose(1, 2).reshape(x.size(0), x.size(1), x.size(2))
        return self.out(self.norm(x + y))


class Encoder(nn.Module):
    """PyTorch's own transformer layers."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True) for _ in range(2)]
        )
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Gate(nn.Module):
    """Which branch runs depends on the data."""

    def __init__(self):
        super().__init__()
        self.small = nn.Linear(6, 6)
        self.large = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 0):
            y = self.large(x)
        else:
            y = self.small(x)
        return y


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.gate = Gate()
        self.last = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.gate(torch.tanh(self.first(x)))))


class Marked(nn.Module):
    """Two cuts by the marker of torch.distributed.pipelining."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.middle = nn.Linear(8, 8)
        self.last = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.first(x))
        pipe_split()
        x = torch.tanh(self.middle(x))
        pipe_split()
        return self.last(x)


class DictOutput(nn.Module):
    """Returns a dict with its own loss, and a value of an early layer."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(6, 8)
        self.middle = nn.Linear(8, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        code = torch.tanh(self.encoder(x))
        logits = self.head(torch.tanh(self.middle(code)))
        return {"loss": functional.mse_loss(logits, labels), "logits": logits, "code": code}


class LateInput(nn.Module):
    """The second input is used by the last layer only."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])
        self.last = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.last(torch.cat([x, context], dim=1))


def fixtures():
    """{name: (model, positional inputs, inputs by name, whether it is traced)}, from the seed."""
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[1, 2:] = False
    return {
        "keyword_mlp": (KeywordMlp(), [torch.randn(8, 6)], {"offset": torch.randn(8, 4)}, False),
        "conv_net": (ConvNet(), [torch.randn(8, 3, 5, 5)], {}, True),
        "tied_gpt": (TiedGpt(), [torch.randint(11, (4, 6))], {}, False),
        "attention": (Attention(), [torch.randn(4, 5, 8), mask], {}, False),
        "encoder_scripted": (Encoder(), [torch.randn(4, 5, 8)], {}, False),
        "encoder_traced": (Encoder(), [torch.randn(4, 5, 8)], {}, True),
        "branching": (Branching(), [torch.randn(8, 6)], {}, False),
        "marked": (Marked(), [torch.randn(8, 6)], {}, False),
        "dict_output": (DictOutput(), [torch.randn(8, 6), torch.randn(8, 2)], {}, False),
        "late_input": (LateInput(), [torch.randn(8, 6), torch.randn(8, 2)], {}, False),
    }


def train_once(model, inputs, keywords):
    """What one step gives; the buffers of the model change. Copies have no unused memory to save."""

    def copy(tensors):
        return tuple((name, tensor.detach().clone()) for name, tensor in tensors)

    output = model(*inputs, **keywords)
    is_dict = isinstance(output, dict)
    target = torch.randn((output["logits"] if is_dict else output).shape)
    loss = output["loss"] if is_dict else functional.mse_loss(output, target)
    loss.backward()
    return {
        "inputs": tuple(inputs),
        "keywords": copy(keywords.items()),
        "target": target,
        "output": dict(copy(output.items())) if is_dict else output.detach().clone(),
        "loss": loss.detach().clone(),
        "gradients": copy(
            (name, value.grad) for name, value in model.named_parameters() if value.grad is not None
        ),
        "buffers": copy(model.named_buffers()),
    }


def write_fixture(folder, name, model, inputs, keywords, is_traced):
    model.train()
    script = model
    if is_traced:
        # Tracing runs the model, which must not change the buffers that are saved.
        before = {key: value.clone() for key, value in model.state_dict().items()}
        script = torch.jit.trace(model, tuple(inputs), check_trace=False)
        script.load_state_dict(before)
    else:
        script = torch.jit.script(model)
    script.save(str(folder / f"{name}.pt"))
    torch.save(train_once(model, inputs, keywords), folder / f"{name}.expected.pt")


def main():
    here = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--folder", type=pathlib.Path, default=here / "tests/run/pipe/fixtures", help="where to write"
    )
    folder = parser.parse_args().folder
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of constants in a file depends on it
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")  # newer versions call TorchScript deprecated
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    for name, (model, inputs, keywords, is_traced) in fixtures().items():
        write_fixture(folder, name, model, inputs, keywords, is_traced)
        print(f"{name}: {(folder / f'{name}.pt').stat().st_size} bytes")
    print(f"written by PyTorch {torch.__version__}")


if __name__ == "__main__":
    main()
