"""The C library for Python: its structs field by field, its functions, and the search for it.

Internal. The structs mirror <specd/specd.h>, <specd/ops.h> and <specd/grammar.h>.
tests/python/abi_test.py compares them with the headers. load() compares the sizes of structs that
carry one with the loaded library.
"""

import ctypes
import os
import pathlib
from ctypes import (POINTER, Structure, c_char_p, c_double, c_float, c_int, c_int32, c_uint8,
                    c_uint32, c_uint64, c_void_p)


class Error(Exception):
    """An error of the library, which refused a call or could not do it. `str(error)` is its text,
    `code_name` is such as "SPECD_ERROR_INVALID_ARGUMENT", and `code` is the number."""

    def __init__(self, code, code_name, text):
        super().__init__(f"{text} ({code_name})" if text else code_name)
        self.code, self.code_name, self.text = code, code_name, text


class Refusal(Error, ValueError):
    """An Error that this package raises itself, before the library is asked."""


def refusal(text):
    """A Refusal, with the code that the library would use."""
    return Refusal(-1, "SPECD_ERROR_INVALID_ARGUMENT", text)


class Ids(Structure):
    _fields_ = [("items", POINTER(c_int32)), ("count", c_uint64)]


class Options(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("vocab_size", c_uint32), ("max_batch", c_uint32),
        ("max_sequences", c_uint32), ("max_draft", c_uint32), ("ring_depth", c_uint32),
        ("timeout_ms", c_uint32), ("max_scores_per_token", c_uint32), ("threads", c_uint32),
        ("stream_timeout_ms", c_uint32), ("name", c_char_p), ("cuda_stream", c_void_p),
        ("max_path", c_uint32), ("reserved", c_uint32), ("tokenizer", c_char_p),
        ("eos_token_ids", Ids), ("reasoning_start", c_char_p), ("reasoning_end", c_char_p),
    ]


class Region(Structure):
    _fields_ = [("id", c_uint32), ("data", c_void_p), ("size_bytes", c_uint64)]


class Tensor(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("region", c_uint32), ("dtype", c_uint32), ("kind", c_uint32),
        ("offset_bytes", c_uint64), ("num_rows", c_uint64), ("row_stride", c_uint64),
        ("scale", c_float), ("cap", c_float), ("renormalise", c_uint32), ("reserved", c_uint32),
    ]


class Floats(Structure):
    _fields_ = [("items", POINTER(c_float)), ("count", c_uint64)]


class Strings(Structure):
    _fields_ = [("items", POINTER(c_char_p)), ("count", c_uint64)]


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
        ("grammar_backend", c_uint32), ("grammar_in_reasoning", c_uint32), ("reserved", c_uint32),
        ("grammar", c_char_p), ("grammar_bytes", c_uint64),
    ]


class SequenceInfo(Structure):
    _fields_ = [("struct_size", c_uint32), ("verify", c_uint32), ("sequence", c_uint64),
                ("seed", c_uint64)]


class SequenceState(Structure):
    _fields_ = [("finish_reason", c_uint32), ("kept_tokens", c_uint32),
                ("cumulative_logprob", c_double)]


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
    ]


class Completion(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("result_size", c_uint32), ("round_id", c_uint64),
        ("num_results", c_uint32), ("reserved", c_uint32),
        ("results", POINTER(Result)), ("verify_ns", c_uint64), ("total_ns", c_uint64),
    ]


class Verdict(Structure):
    _fields_ = [("device_address", c_uint64), ("answered", c_uint64)]


class Sharing(Structure):
    _fields_ = [("mode", c_uint32), ("reserved", c_uint32), ("text", c_char_p)]


class Group(Structure):
    _fields_ = [("token", c_char_p), ("bound_ranks", c_uint32), ("reserved", c_uint32)]


class JoinOptions(Structure):
    _fields_ = [("struct_size", c_uint32), ("rank", c_uint32), ("timeout_ms", c_uint32),
                ("reserved", c_uint32), ("name", c_char_p)]


class DraftRequest(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("reserved", c_uint32), ("sequence", c_uint64),
        ("row", c_uint32), ("mask_row", c_int32),
        ("prefix", POINTER(c_int32)), ("num_prefix", c_uint32), ("sampling", c_uint32),
        ("num_children", c_uint32), ("first_node", c_uint32),
    ]


class DraftChild(Structure):
    _fields_ = [("id", c_int32), ("count", c_uint32), ("weight", c_float), ("reserved", c_uint32),
                ("mass", c_double)]


class DraftChildren(Structure):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("sequence", c_uint64),
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
                ("scores_per_token", c_uint32), ("scores", POINTER(TokenScore))]


class Coin(Structure):
    _fields_ = [("position", c_uint32), ("round_base", c_uint32), ("node", c_uint32),
                ("purpose", c_uint32), ("value", c_uint64)]


class EngineStats(Structure):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32)] + [
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
        ("indices", POINTER(c_uint32)), ("num_indices", c_uint64),
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
        ("position", RowWords),
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
        ("backend", c_uint32), ("reserved", c_uint32),
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


# Result type, then argument types.
FUNCTIONS = {
    "specd_last_error": (c_char_p,),
    "specd_code_name": (c_char_p, c_int),
    "specd_version": (c_char_p,),
    "specd_detail_text": (c_char_p, c_uint32),
    "specd_options_init": (None, POINTER(Options)),
    "specd_open": (c_int, c_char_p, POINTER(Options), POINTER(c_void_p)),
    "specd_close": (None, c_void_p),
    "specd_alloc": (c_int, c_void_p, c_uint64, POINTER(Region)),
    "specd_import_fd": (c_int, c_void_p, c_int, c_uint64, POINTER(Region)),
    "specd_import_device": (c_int, c_void_p, c_uint64, c_uint64, POINTER(Region)),
    "specd_unregister": (c_int, c_void_p, c_uint32),
    "specd_sequence_slot": (c_uint32, c_uint64),
    "specd_tensor_init": (None, POINTER(Tensor)),
    "specd_bind": (c_int, c_void_p, c_int, POINTER(Tensor)),
    "specd_params_init": (None, POINTER(Params)),
    "specd_get_param_info": (c_int, c_uint32, POINTER(ParamInfo)),
    "specd_open_sequence": (c_int, c_void_p, c_char_p, POINTER(Params), POINTER(SequenceInfo)),
    "specd_opening_warnings": (c_char_p, c_void_p),
    "specd_fork": (c_int, c_void_p, c_uint64, c_char_p, POINTER(c_uint64), POINTER(SequenceInfo)),
    "specd_close_sequence": (c_int, c_void_p, c_uint64),
    "specd_abort": (c_int, c_void_p, c_uint64),
    "specd_get_sequence_state": (c_int, c_void_p, c_uint64, POINTER(SequenceState)),
    "specd_submit": (c_int, c_void_p, c_uint64, POINTER(Draft), c_uint32),
    "specd_submit_on_stream": (c_int, c_void_p, c_uint64, POINTER(Draft), c_uint32, c_void_p),
    "specd_enqueue_staged": (c_int, c_void_p, c_uint32, c_void_p),
    "specd_stage_round": (c_int, c_void_p, c_uint64, POINTER(Draft), c_uint32),
    "specd_get_verdict": (c_int, c_void_p, POINTER(Verdict)),
    "specd_get_sharing": (c_int, c_void_p, POINTER(Sharing)),
    "specd_get_group": (c_int, c_void_p, POINTER(Group)),
    "specd_join_options_init": (None, POINTER(JoinOptions)),
    "specd_join": (c_int, c_char_p, c_char_p, POINTER(JoinOptions), POINTER(c_void_p)),
    "specd_member_bind_device": (c_int, c_void_p, c_uint64, c_uint64),
    "specd_member_bind_fd": (c_int, c_void_p, c_int, c_uint64, c_uint64, c_uint64),
    "specd_member_check": (c_int, c_void_p),
    "specd_leave": (c_int, c_void_p),
    "specd_poll": (c_int, c_void_p, POINTER(Completion), c_int),
    "specd_sample_draft": (c_int, c_void_p, POINTER(DraftRequest), c_uint32,
                           POINTER(DraftChildren)),
    "specd_forced_tokens": (c_int, c_void_p, c_uint64, POINTER(c_int32), c_uint32,
                            POINTER(c_int32), c_uint32, POINTER(c_uint32)),
    "specd_score": (c_int, c_void_p, POINTER(ScoreRequest), c_uint32, POINTER(ScoreResult)),
    "specd_set_coins": (c_int, c_void_p, c_uint64, POINTER(Coin), c_uint32),
    "specd_engine_stats_init": (None, POINTER(EngineStats)),
    "specd_get_engine_stats": (c_int, c_void_p, POINTER(EngineStats)),
    "specd_rows_init": (None, POINTER(Rows)),
    "specd_softmax": (c_int, POINTER(Rows), RowDoubles, POINTER(c_float), POINTER(c_uint32)),
    "specd_top_k_renorm": (c_int, POINTER(Rows), RowInts, POINTER(c_float), POINTER(c_uint32)),
    "specd_top_p_renorm": (c_int, POINTER(Rows), RowDoubles, POINTER(c_float), POINTER(c_uint32)),
    "specd_top_k_mask": (c_int, POINTER(Rows), RowInts, POINTER(c_float), POINTER(c_uint32)),
    "specd_argmax": (c_int, POINTER(Rows), POINTER(c_int32), POINTER(c_uint32)),
    "specd_sampling_init": (None, POINTER(Sampling)),
    "specd_sample": (c_int, POINTER(Rows), POINTER(Sampling), POINTER(c_int32), POINTER(c_uint32)),
    "specd_tokenizer_options_init": (None, POINTER(TokenizerOptions)),
    "specd_tokenizer_new": (c_int, POINTER(TokenizerOptions), POINTER(c_void_p)),
    "specd_tokenizer_free": (None, c_void_p),
    "specd_grammar_options_init": (None, POINTER(GrammarOptions)),
    "specd_grammar_compile": (c_int, c_void_p, POINTER(GrammarOptions), POINTER(c_void_p)),
    "specd_grammar_free": (None, c_void_p),
    "specd_get_grammar_info": (c_int, c_void_p, POINTER(GrammarInfo)),
    "specd_matcher_new": (c_int, c_void_p, Ids, POINTER(c_void_p)),
    "specd_matcher_fork": (c_int, c_void_p, POINTER(c_void_p)),
    "specd_matcher_free": (None, c_void_p),
    "specd_matcher_mask": (c_int, c_void_p, POINTER(c_int32), c_uint64),
    "specd_matcher_accept": (c_int, c_void_p, c_int32),
    "specd_matcher_rollback": (c_int, c_void_p, c_uint64),
    "specd_matcher_num_accepted": (c_int, c_void_p, POINTER(c_uint64)),
    "specd_matcher_is_terminated": (c_int, c_void_p),
    "specd_matcher_is_accepting": (c_int, c_void_p),
    "specd_matcher_is_finished": (c_int, c_void_p),
    "specd_matcher_forced_text": (c_int, c_void_p, POINTER(c_char_p), POINTER(c_uint64)),
    "specd_matcher_forced_tokens": (c_int, c_void_p, POINTER(c_int32), c_uint64,
                                    POINTER(c_uint64)),
    "specd_mask_rows_init": (None, POINTER(MaskRows)),
    "specd_fill_masks": (c_int, POINTER(c_void_p), c_uint64, POINTER(MaskRows)),
}

_SIZED = {
    "specd_options_init": Options, "specd_tensor_init": Tensor, "specd_params_init": Params,
    "specd_join_options_init": JoinOptions, "specd_engine_stats_init": EngineStats,
    "specd_rows_init": Rows, "specd_sampling_init": Sampling,
    "specd_tokenizer_options_init": TokenizerOptions,
    "specd_grammar_options_init": GrammarOptions, "specd_mask_rows_init": MaskRows,
}

_SONAME = "libspecd.so.0"
_library = None


def load():
    """Loads the library once and returns it. SPECD_LIBRARY names it. Otherwise load looks where an
    installation has it, relative to this package, and then asks the system's loader."""
    global _library
    if _library is None:
        _library = _declare(_find())
    return _library


def _find():
    named = os.environ.get("SPECD_LIBRARY")
    if named:
        candidates = [named]
    else:
        # PREFIX/lib/specd/python/specd/ is the package, PREFIX/lib/ has the library.
        prefix_lib = pathlib.Path(__file__).resolve().parents[3]
        candidates = [str(prefix_lib / _SONAME), _SONAME]
    tried = []
    for candidate in candidates:
        try:
            return ctypes.CDLL(candidate)
        except OSError as error:
            tried.append(f"  {candidate}: {error}")
    where = "SPECD_LIBRARY names it" if named else "SPECD_LIBRARY is not set"
    raise ImportError(f"libspecd was not found ({where}). Tried:\n" + "\n".join(tried) +
                      f"\nSet SPECD_LIBRARY to the path of {_SONAME}.")


def _declare(library):
    for name, (result, *arguments) in FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(f"{library._name} has no {name}: it is of another version than this "
                              "Python package; install both from one build") from None
        function.restype, function.argtypes = result, arguments
    for init, struct in _SIZED.items():
        value = struct()
        getattr(library, init)(ctypes.byref(value))
        if value.struct_size != ctypes.sizeof(struct):
            raise ImportError(
                f"{library._name} has {value.struct_size} bytes where this Python package has "
                f"{ctypes.sizeof(struct)} ({init}): they are of different versions; install both "
                "from one build")
    return library


def last_error():
    """Returns the library's last error of the calling thread, in words; "" if there was none. In
    embedded mode it also gives the reason for results with the status "device_error", which raise
    no Error. A daemon logs that reason."""
    return load().specd_last_error().decode()


def check(code):
    """Raises Error if `code` is one; returns it otherwise (0, or a positive answer)."""
    if code < 0:
        raise Error(code, load().specd_code_name(code).decode(), last_error())
    return code


def call_into(codes, function, *arguments):
    """Calls a function of the library and appends its code to the list `codes`. C does both, so an
    interrupt comes before the call or after both. `codes` therefore says whether the call was
    made."""
    codes.extend(map(function, *([argument] for argument in arguments)))


def text_bytes(text, name):
    """The text as C takes it. A NUL would end the text there, and the rest would be lost."""
    if not isinstance(text, str):
        raise refusal(f"{name}: {text!r} is not a string")
    if "\0" in text:
        raise refusal(f"{name}: {text!r} has a NUL character; remove it")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise refusal(f"{name}: {error}") from None


def initialised(struct, init):
    """A struct with the library's defaults."""
    value = struct()
    getattr(load(), init)(ctypes.byref(value))
    return value


def sized(struct, count):
    """An array of `count` structs that are zero but for struct_size."""
    table = (struct * count)()
    for element in table:
        element.struct_size = ctypes.sizeof(struct)
    return table
