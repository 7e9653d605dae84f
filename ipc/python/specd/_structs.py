"""The structs of <specd/specd.h>, <specd/ops.h> and <specd/grammar.h>, field by field.

Internal. tests/python/abi_test.py compares them with the headers. _library.load compares the sizes
of structs that carry one with the loaded library.
"""

from ctypes import (POINTER, Structure, c_char_p, c_double, c_float, c_int32, c_uint8, c_uint32,
                    c_uint64, c_void_p)


class Ids(Structure):
    _fields_ = [("items", POINTER(c_int32)), ("count", c_uint64)]


class Strings(Structure):
    _fields_ = [("items", POINTER(c_char_p)), ("count", c_uint64)]


class Options(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("vocab_size", c_uint32), ("max_batch", c_uint32),
        ("max_sequences", c_uint32), ("max_draft", c_uint32), ("ring_depth", c_uint32),
        ("timeout_ms", c_uint32), ("max_scores_per_token", c_uint32), ("threads", c_uint32),
        ("stream_timeout_ms", c_uint32), ("name", c_char_p), ("cuda_stream", c_void_p),
        ("max_path", c_uint32), ("reserved", c_uint32), ("tokenizer", c_char_p),
        ("eos_token_ids", Ids), ("reasoning_start", c_char_p), ("reasoning_end", c_char_p),
        ("profile", c_char_p), ("profile_file", c_char_p),
        ("trace", c_char_p), ("trace_options", c_char_p), ("eos_tokens", Strings),
        ("spin_us", c_int32), ("compile_ms", c_uint32), ("compile_mib", c_uint32),
        ("reconnect_ms", c_uint32), ("allow_lossy", c_uint32),
    ]


class Region(Structure):
    _fields_ = [("id", c_uint32), ("data", c_void_p), ("size_bytes", c_uint64)]


class Tensor(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("region", c_uint32), ("dtype", c_uint32), ("kind", c_uint32),
        ("offset_bytes", c_uint64), ("num_rows", c_uint64), ("row_stride", c_uint64),
        ("scale", c_float), ("cap", c_float), ("renormalise", c_uint32), ("columns", c_uint32),
    ]


class Floats(Structure):
    _fields_ = [("items", POINTER(c_float)), ("count", c_uint64)]


class Number(Structure):
    _fields_ = [("name", c_char_p), ("value", c_double)]


class Numbers(Structure):
    _fields_ = [("items", POINTER(Number)), ("count", c_uint64)]


class ParamInfo(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("type", c_uint32), ("name", c_char_p), ("vllm_name", c_char_p),
        ("sglang_name", c_char_p), ("meaning", c_char_p), ("range", c_char_p),
        ("choices", Strings), ("default_value", c_double), ("minimum", c_double),
        ("maximum", c_double),
    ]


class Processor(Structure):
    _fields_ = [("name", c_char_p), ("values", c_char_p)]


class Params(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("verify", c_uint32), ("seed", c_uint64),
        ("has_seed", c_uint32), ("n", c_uint32),
        ("temperature", c_double), ("top_p", c_double), ("min_p", c_double), ("top_k", c_int32),
        ("filter_order", c_uint32),
        ("frequency_penalty", c_double), ("presence_penalty", c_double),
        ("repetition_penalty", c_double), ("logit_bias_ids", Ids), ("logit_bias", Floats),
        ("allowed_token_ids", Ids), ("disallowed_token_ids", Ids), ("bad_word_ids", Ids),
        ("bad_word_lengths", Ids), ("no_repeat_ngram_size", c_uint32),
        ("no_repeat_ngram_window", c_uint32), ("no_repeat_ngram_whitelist", Ids),
        ("thinking_budget", c_int32), ("thinking_start_id", c_int32),
        ("thinking_newline_id", c_int32), ("num_processors", c_uint32), ("thinking_end_ids", Ids),
        ("thinking_preset", c_char_p), ("processors", POINTER(Processor)),
        ("max_tokens", c_uint32), ("min_tokens", c_uint32), ("stop_token_ids", Ids),
        ("stop_strings", Strings), ("ignore_eos", c_uint32), ("include_stop", c_uint32),
        ("skip_special_tokens", c_uint32), ("logprobs", c_int32), ("logprobs_mode", c_uint32),
        ("draft_edits", c_uint32), ("logprob_token_ids", Ids),
        ("draft_temperature", c_double), ("draft_top_p", c_double), ("draft_min_p", c_double),
        ("draft_top_k", c_int32), ("draft_filter_order", c_uint32),
        ("prompt_ids", Ids), ("output_ids", Ids), ("numbers", Numbers), ("grammar_kind", c_uint32),
        ("grammar_whitespace", c_uint32), ("grammar_lenient", c_uint32),
        ("grammar_in_reasoning", c_uint32), ("grammar_key_order", c_uint32),
        ("grammar", c_char_p), ("grammar_bytes", c_uint64), ("stop_regex", Strings),
        ("synthetic_rates", Floats),
    ]


class SequenceInfo(Structure):
    _fields_ = [("struct_size", c_uint32), ("verify", c_uint32), ("sequence", c_uint64),
                ("seed", c_uint64)]


class SequenceState(Structure):
    _fields_ = [("finish_reason", c_uint32), ("kept_tokens", c_uint32),
                ("cumulative_logprob", c_double), ("phase", c_uint32), ("reserved", c_uint32)]


class Text(Structure):
    _fields_ = [("struct_size", c_uint32), ("finish_reason", c_uint32), ("text", c_char_p),
                ("size_bytes", c_uint64), ("byte_offset", c_uint64), ("token_offset", c_uint64),
                ("ends", POINTER(c_uint64)), ("num_tokens", c_uint32), ("stop_index", c_int32),
                ("stop_string", c_char_p), ("reasoning_bytes", c_uint64),
                ("reasoning_tokens", c_uint64)]


class Draft(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("flags", c_uint32), ("sequence", c_uint64),
        ("num_nodes", c_uint32), ("reserved", c_uint32), ("tokens", POINTER(c_int32)),
        ("parents", POINTER(c_int32)), ("kinds", POINTER(c_uint8)),
        ("target_rows", POINTER(c_uint32)), ("draft_rows", POINTER(c_uint32)),
        ("mask_rows", POINTER(c_int32)), ("draft_weights", POINTER(c_float)),
        ("draft_masses", POINTER(c_double)), ("target_argmax", POINTER(c_int32)),
    ]


class TokenScore(Structure):
    _fields_ = [("id", c_int32), ("value", c_float), ("rank", c_int32)]


class Result(Structure):
    _fields_ = [
        ("sequence", c_uint64), ("status", c_uint32), ("finish_reason", c_uint32),
        ("num_accepted", c_uint32), ("num_kept", c_uint32), ("total_kept", c_uint32),
        ("stop_token", c_int32), ("detail", c_uint32), ("scores_per_token", c_uint32),
        ("tokens", POINTER(c_int32)), ("path", POINTER(c_int32)),
        ("scores", POINTER(TokenScore)), ("cumulative_logprob", c_double),
        ("verify", c_uint32), ("bad_row", c_uint32), ("lossy", c_uint32), ("reserved", c_uint32),
    ]


class Completion(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("result_size", c_uint32), ("round_id", c_uint64),
        ("num_results", c_uint32), ("reserved", c_uint32),
        ("results", POINTER(Result)), ("verify_ns", c_uint64), ("total_ns", c_uint64),
    ]


class Batch(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("num_sequences", c_uint32), ("sequences", POINTER(c_uint64)),
        ("flags", POINTER(c_uint32)), ("draft_offsets", POINTER(c_uint32)),
        ("tokens", POINTER(c_int32)), ("parents", POINTER(c_int32)), ("kinds", POINTER(c_uint8)),
        ("draft_rows", POINTER(c_uint32)), ("draft_weights", POINTER(c_float)),
        ("draft_masses", POINTER(c_double)), ("target_rows", POINTER(c_uint32)),
        ("mask_rows", POINTER(c_int32)), ("target_argmax", POINTER(c_int32)),
    ]


class BatchResults(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("max_results", c_uint32), ("tokens_stride", c_uint32),
        ("scores_stride", c_uint32), ("status", POINTER(c_uint32)),
        ("finish_reason", POINTER(c_uint32)), ("num_accepted", POINTER(c_uint32)),
        ("num_kept", POINTER(c_uint32)), ("total_kept", POINTER(c_uint32)),
        ("stop_token", POINTER(c_int32)), ("detail", POINTER(c_uint32)),
        ("bad_row", POINTER(c_uint32)), ("verify", POINTER(c_uint32)),
        ("scores_per_token", POINTER(c_uint32)), ("cumulative_logprob", POINTER(c_double)),
        ("tokens", POINTER(c_int32)), ("path", POINTER(c_int32)),
        ("scores", POINTER(TokenScore)), ("round_id", c_uint64), ("verify_ns", c_uint64),
        ("total_ns", c_uint64), ("num_results", c_uint32), ("reserved", c_uint32),
    ]


class Openings(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("num_openings", c_uint32),
        ("request_ids", POINTER(c_char_p)), ("params", POINTER(Params)),
        ("infos", POINTER(SequenceInfo)), ("max_infos", c_uint32), ("refused", c_uint32),
        ("flags", c_uint32), ("reserved", c_uint32),
    ]


class RoundEnd(Structure):
    _fields_ = [("device_address", c_uint64), ("answered", c_uint64)]


class Sharing(Structure):
    _fields_ = [("mode", c_uint32), ("reserved", c_uint32), ("text", c_char_p)]


class Group(Structure):
    _fields_ = [("token", c_char_p), ("bound_ranks", c_uint32), ("reserved", c_uint32)]


class TraceDump(Structure):
    _fields_ = [("path", c_char_p), ("num_rounds", c_uint64), ("num_lost", c_uint64)]


class JoinOptions(Structure):
    _fields_ = [("struct_size", c_uint32), ("rank", c_uint32), ("timeout_ms", c_uint32),
                ("reconnect_ms", c_uint32), ("name", c_char_p)]


class DraftRequest(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("reserved", c_uint32), ("sequence", c_uint64),
        ("row", c_uint32), ("mask_row", c_int32),
        ("prefix", POINTER(c_int32)), ("num_prefix", c_uint32), ("sampling", c_uint32),
        ("num_children", c_uint32), ("first_node", c_uint32),
    ]


class DraftChild(Structure):
    _fields_ = [("id", c_int32), ("count", c_uint32), ("weight", c_float), ("kind", c_uint32),
                ("mass", c_double)]


class Growth(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("num_candidates", c_uint32), ("parents", POINTER(c_int32)),
        ("scores", POINTER(c_float)), ("num_nodes", c_uint32), ("max_depth", c_uint32),
    ]


class Ngrams(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("min_ngram", c_uint32), ("max_ngram", c_uint32),
        ("num_nodes", c_uint32), ("max_depth", c_uint32), ("width", c_uint32), ("text", Ids),
    ]


class LengthRule(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("min_length", c_uint32), ("max_length", c_uint32),
        ("memory", c_uint32), ("step_cost", c_double), ("judged", c_double), ("accepted", c_double),
    ]


class DraftChildren(Structure):
    _fields_ = [("struct_size", c_uint32), ("detail", c_uint32), ("sequence", c_uint64),
                ("status", c_uint32), ("num_children", c_uint32),
                ("children", POINTER(DraftChild))]


class ScoreRequest(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("mode", c_uint32), ("rows", POINTER(c_uint32)),
        ("ids", POINTER(c_int32)), ("num_ids", c_uint32), ("num_top", c_uint32),
        ("chosen_ids", Ids),
    ]


class ScoreResult(Structure):
    _fields_ = [("struct_size", c_uint32), ("status", c_uint32), ("num_scored", c_uint32),
                ("scores_per_token", c_uint32), ("scores", POINTER(TokenScore)),
                ("detail", c_uint32), ("reserved", c_uint32)]


class Coin(Structure):
    _fields_ = [("position", c_uint32), ("round_base", c_uint32), ("node", c_uint32),
                ("purpose", c_uint32), ("value", c_uint64)]


class EngineStats(Structure):
    _fields_ = [("struct_size", c_uint32), ("reattached", c_uint32)] + [
        (name, c_uint64) for name in
        ("rounds", "sequence_rounds", "drafted", "accepted", "kept", "bad_target_rows",
         "bad_draft_rows", "empty_residuals", "invalid_drafts", "point_masses", "invalid_records",
         "bad_tokens", "discarded")
    ]


class Rows(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("vocab_size", c_uint32), ("data", c_void_p),
        ("num_rows", c_uint64), ("row_stride", c_uint64), ("dtype", c_uint32), ("kind", c_uint32),
        ("scale", c_float), ("cap", c_float), ("renormalise", c_uint32), ("reserved", c_uint32),
        ("indices", POINTER(c_uint32)), ("num_indices", c_uint64), ("device", c_char_p),
        ("cuda_stream", c_void_p),
    ]


class RowDoubles(Structure):
    _fields_ = [("items", POINTER(c_double)), ("stride", c_uint64)]


class RowInts(Structure):
    _fields_ = [("items", POINTER(c_int32)), ("stride", c_uint64)]


class RowWords(Structure):
    _fields_ = [("items", POINTER(c_uint64)), ("stride", c_uint64)]


class Sampling(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("filter_order", c_uint32), ("temperature", RowDoubles),
        ("top_p", RowDoubles), ("min_p", RowDoubles), ("top_k", RowInts), ("seed", RowWords),
        ("position", RowWords), ("round_base", RowWords),
    ]


class Token(Structure):
    _fields_ = [("bytes", c_char_p), ("size_bytes", c_uint32), ("special", c_uint32)]


class Tokens(Structure):
    _fields_ = [("items", POINTER(Token)), ("count", c_uint64)]


class TokenizerOptions(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("vocab_size", c_uint32), ("path", c_char_p),
        ("json", c_char_p), ("json_bytes", c_uint64), ("tokens", Tokens), ("eos_token_ids", Ids),
    ]


class GrammarOptions(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("kind", c_uint32), ("text", c_char_p),
        ("text_bytes", c_uint64), ("whitespace", c_uint32), ("lenient", c_uint32),
        ("key_order", c_uint32),
    ]


class GrammarInfo(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("vocab_size", c_uint32), ("num_mask_words", c_uint64),
        ("size_bytes", c_uint64), ("warnings", Strings),
    ]


class MaskRows(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("threads", c_uint32), ("words", POINTER(c_int32)),
        ("num_rows", c_uint64), ("row_stride", c_uint64), ("indices", POINTER(c_uint32)),
    ]
