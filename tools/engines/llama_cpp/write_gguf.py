#!/usr/bin/env python3
"""Writes GGUF files of the models that tools/engines/transformers/train_models.py has trained.

Usage: write_gguf.py FOLDER [--vocab_size N]

FOLDER has target/, assistant/ and tokenizer.json. It gets target.gguf and assistant.gguf, with weights of 32
bits and the tokenizer. --vocab_size widens the models by untrained ids, so that rows have that length.
"""

import argparse
import json
import pathlib
import sys

import gguf
import numpy as np
from safetensors.numpy import load_file

LAYER_TENSORS = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def rotary_order(weight, num_heads):
    """transformers rotates element i of a head with i + half; llama.cpp rotates neighbours."""
    rows, columns = weight.shape
    halves = weight.reshape(num_heads, 2, rows // num_heads // 2, columns)
    return halves.swapaxes(1, 2).reshape(rows, columns)


def widened(embeddings, vocab_size):
    """Further rows for untrained ids, drawn as the trained ones are spread."""
    generator = np.random.default_rng(1)
    more = generator.normal(0, embeddings.std(), (vocab_size - len(embeddings), embeddings.shape[1]))
    return np.concatenate([embeddings, more.astype(np.float32)])


def write_config(writer, config, vocab_size):
    heads = config["num_attention_heads"]
    writer.add_vocab_size(vocab_size)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)


def write_tokenizer(writer, tokenizer, vocab_size, eos):
    special = {token["id"] for token in tokenizer["added_tokens"]}
    ids = {**tokenizer["model"]["vocab"],
           **{token["content"]: token["id"] for token in tokenizer["added_tokens"]}}
    texts = sorted(ids, key=ids.get)
    unused = [f"<|unused {token}|>" for token in range(len(texts), vocab_size)]
    kinds = [gguf.TokenType.CONTROL if ids[text] in special else gguf.TokenType.NORMAL
             for text in texts]
    merges = [merge if isinstance(merge, str) else " ".join(merge)
              for merge in tokenizer["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(texts + unused)
    writer.add_token_types(kinds + [gguf.TokenType.UNUSED] * len(unused))
    writer.add_token_merges(merges)
    writer.add_bos_token_id(eos)
    writer.add_eos_token_id(eos)
    writer.add_add_bos_token(False)


def write_weights(writer, weights, config, vocab_size):
    heads = config["num_attention_heads"]
    rotated = {"attn_q": heads, "attn_k": config.get("num_key_value_heads") or heads}
    # llama.cpp takes the embeddings as the output where there is no output.weight.
    embeddings = weights.pop("model.embed_tokens.weight")
    writer.add_tensor("token_embd.weight", widened(embeddings, vocab_size))
    writer.add_tensor("output_norm.weight", weights.pop("model.norm.weight"))
    for name, weight in weights.items():
        _, _, layer, *parts, _ = name.split(".")
        tensor = LAYER_TENSORS[".".join(parts)]
        if tensor in rotated:
            weight = rotary_order(weight, rotated[tensor])
        writer.add_tensor(f"blk.{layer}.{tensor}.weight", np.ascontiguousarray(weight))


def write(folder, name, vocab_size):
    config = json.loads((folder / name / "config.json").read_text())
    weights = load_file(folder / name / "model.safetensors")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    if config["model_type"] != "llama" or not config["tie_word_embeddings"]:
        sys.exit(f"{folder / name}: its model_type is {config['model_type']}; only models of "
                 "train_models.py are written (llama, tied embeddings)")
    vocab_size = vocab_size or config["vocab_size"]
    if vocab_size < config["vocab_size"]:
        sys.exit(f"--vocab_size: {vocab_size} is below {config['vocab_size']}, the ids of the model")
    writer = gguf.GGUFWriter(folder / f"{name}.gguf", "llama")
    writer.add_name(name)
    write_config(writer, config, vocab_size)
    write_tokenizer(writer, tokenizer, vocab_size, config["eos_token_id"])
    write_weights(writer, weights, config, vocab_size)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--vocab_size", type=int, default=0)
    asked = parser.parse_args()
    for name in ("target", "assistant"):
        if not (asked.folder / name / "config.json").exists():
            sys.exit(f"{asked.folder / name}: there is no model; run "
                     "tools/engines/transformers/train_models.py first")
        write(asked.folder, name, asked.vocab_size)


if __name__ == "__main__":
    main()
