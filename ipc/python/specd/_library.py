"""The C library for Python: its functions, the search for it, and its errors.

Internal. tests/python/abi_test.py compares the functions with the headers. load() compares the
sizes of structs that carry one with the loaded library.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_float, c_int, c_int32, c_uint32, c_uint64, c_void_p
from typing import Any, TypeVar

from . import _structs as s


class Error(Exception):
    """An error of the library, which refused a call or could not do it. `str(error)` is its text,
    `code_name` is such as "SPECD_ERROR_INVALID_ARGUMENT", and `code` is the number."""

    def __init__(self, code: int, code_name: str, text: str):
        super().__init__(f"{text} ({code_name})" if text else code_name)
        self.code, self.code_name, self.text = code, code_name, text


class Refusal(Error, ValueError):
    """An Error that this package raises itself, before the library is asked."""


def refusal(text: str) -> Refusal:
    """A Refusal, with the code that the library would use."""
    return Refusal(-1, "SPECD_ERROR_INVALID_ARGUMENT", text)


# Result type, then argument types.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "specd_last_error": (c_char_p,),
    "specd_code_name": (c_char_p, c_int),
    "specd_version": (c_char_p,),
    "specd_detail_text": (c_char_p, c_uint32),
    "specd_options_init": (None, POINTER(s.Options)),
    "specd_load_backends": (c_int, c_char_p),
    "specd_open": (c_int, c_char_p, POINTER(s.Options), POINTER(c_void_p)),
    "specd_close": (None, c_void_p),
    "specd_alloc": (c_int, c_void_p, c_uint64, POINTER(s.Region)),
    "specd_import_fd": (c_int, c_void_p, c_int, c_uint64, POINTER(s.Region)),
    "specd_import_device": (c_int, c_void_p, c_uint64, c_uint64, POINTER(s.Region)),
    "specd_lend": (c_int, c_void_p, c_void_p, c_uint64, POINTER(s.Region)),
    "specd_unregister": (c_int, c_void_p, c_uint32),
    "specd_sequence_slot": (c_uint32, c_uint64),
    "specd_tensor_init": (None, POINTER(s.Tensor)),
    "specd_bind": (c_int, c_void_p, c_int, POINTER(s.Tensor)),
    "specd_params_init": (None, POINTER(s.Params)),
    "specd_get_param_info": (c_int, c_uint32, POINTER(s.ParamInfo)),
    "specd_refused_param": (c_char_p, c_char_p, c_char_p),
    "specd_params_check": (c_int, POINTER(s.Params), POINTER(s.Options)),
    "specd_open_sequence": (c_int, c_void_p, c_char_p, POINTER(s.Params), POINTER(s.SequenceInfo)),
    "specd_opening_warnings": (c_char_p, c_void_p),
    "specd_await_opening": (c_int, c_void_p, c_uint64, c_int),
    "specd_fork": (c_int, c_void_p, c_uint64, c_char_p, POINTER(c_uint64), POINTER(s.SequenceInfo)),
    "specd_close_sequence": (c_int, c_void_p, c_uint64),
    "specd_abort": (c_int, c_void_p, c_uint64),
    "specd_get_sequence_state": (c_int, c_void_p, c_uint64, POINTER(s.SequenceState)),
    "specd_sequence_final": (c_int, c_void_p, c_uint64, POINTER(s.SequenceState), c_int),
    "specd_token_bytes": (c_int, c_void_p, c_int32, POINTER(c_char_p), POINTER(c_uint64)),
    "specd_sequence_text": (c_int, c_void_p, c_uint64, POINTER(s.Text)),
    "specd_submit": (c_int, c_void_p, c_uint64, POINTER(s.Draft), c_uint32),
    "specd_submit_on_stream": (c_int, c_void_p, c_uint64, POINTER(s.Draft), c_uint32, c_void_p),
    "specd_mark_drafts": (c_int, c_void_p, c_void_p),
    "specd_enqueue_staged": (c_int, c_void_p, c_uint32, c_void_p),
    "specd_stage_round": (c_int, c_void_p, c_uint64, POINTER(s.Draft), c_uint32),
    "specd_get_round_end": (c_int, c_void_p, POINTER(s.RoundEnd)),
    "specd_get_sharing": (c_int, c_void_p, POINTER(s.Sharing)),
    "specd_get_group": (c_int, c_void_p, POINTER(s.Group)),
    "specd_dump_trace": (c_int, c_void_p, POINTER(s.TraceDump)),
    "specd_join_options_init": (None, POINTER(s.JoinOptions)),
    "specd_join": (c_int, c_char_p, c_char_p, POINTER(s.JoinOptions), POINTER(c_void_p)),
    "specd_member_bind_device": (c_int, c_void_p, c_uint64, c_uint64),
    "specd_member_bind_fd": (c_int, c_void_p, c_int, c_uint64, c_uint64, c_uint64),
    "specd_member_bind_device_tensor": (c_int, c_void_p, c_int, c_uint64, c_uint64,
                                        POINTER(s.Tensor)),
    "specd_member_bind_fd_tensor": (c_int, c_void_p, c_int, c_int, c_uint64, POINTER(s.Tensor)),
    "specd_member_check": (c_int, c_void_p),
    "specd_leave": (c_int, c_void_p),
    "specd_poll": (c_int, c_void_p, POINTER(s.Completion), c_int),
    "specd_batch_init": (None, POINTER(s.Batch)),
    "specd_batch_results_init": (None, POINTER(s.BatchResults)),
    "specd_submit_batch": (c_int, c_void_p, c_uint64, POINTER(s.Batch)),
    "specd_submit_batch_on_stream": (c_int, c_void_p, c_uint64, POINTER(s.Batch), c_void_p),
    "specd_poll_batch": (c_int, c_void_p, POINTER(s.BatchResults), c_int),
    "specd_verify_batch": (c_int, c_void_p, c_uint64, POINTER(s.Batch), POINTER(s.BatchResults),
                           c_int),
    "specd_openings_init": (None, POINTER(s.Openings)),
    "specd_open_sequences": (c_int, c_void_p, POINTER(s.Openings)),
    "specd_sample_draft": (c_int, c_void_p, POINTER(s.DraftRequest), c_uint32,
                           POINTER(s.DraftChildren)),
    "specd_forced_tokens": (c_int, c_void_p, c_uint64, POINTER(c_int32), c_uint32,
                            POINTER(c_int32), c_uint32, POINTER(c_uint32)),
    "specd_score": (c_int, c_void_p, POINTER(s.ScoreRequest), c_uint32, POINTER(s.ScoreResult)),
    "specd_set_coins": (c_int, c_void_p, c_uint64, POINTER(s.Coin), c_uint32),
    "specd_engine_stats_init": (None, POINTER(s.EngineStats)),
    "specd_get_engine_stats": (c_int, c_void_p, POINTER(s.EngineStats)),
    "specd_growth_init": (None, POINTER(s.Growth)),
    "specd_grow_tree": (c_int, POINTER(s.Growth), POINTER(c_uint32), POINTER(c_int32),
                        POINTER(c_uint32)),
    "specd_static_tree": (c_int, POINTER(c_uint32), c_uint32, POINTER(c_int32), POINTER(c_uint32)),
    "specd_ngrams_init": (None, POINTER(s.Ngrams)),
    "specd_length_rule_init": (None, POINTER(s.LengthRule)),
    "specd_next_length": (c_int, POINTER(s.LengthRule), c_uint32, c_uint32, POINTER(c_uint32)),
    "specd_draft_ngram": (c_int, POINTER(s.Ngrams), POINTER(c_int32), POINTER(c_int32),
                          POINTER(c_uint32)),
    "specd_rows_init": (None, POINTER(s.Rows)),
    "specd_softmax": (c_int, POINTER(s.Rows), s.RowDoubles, POINTER(c_float), POINTER(c_uint32)),
    "specd_top_k_renorm": (c_int, POINTER(s.Rows), s.RowInts, POINTER(c_float), POINTER(c_uint32)),
    "specd_top_p_renorm": (c_int, POINTER(s.Rows), s.RowDoubles, POINTER(c_float),
                           POINTER(c_uint32)),
    "specd_top_k_mask": (c_int, POINTER(s.Rows), s.RowInts, POINTER(c_float), POINTER(c_uint32)),
    "specd_argmax": (c_int, POINTER(s.Rows), POINTER(c_int32), POINTER(c_uint32)),
    "specd_sampling_init": (None, POINTER(s.Sampling)),
    "specd_sample": (c_int, POINTER(s.Rows), POINTER(s.Sampling), POINTER(c_int32),
                     POINTER(c_uint32)),
    "specd_tokenizer_options_init": (None, POINTER(s.TokenizerOptions)),
    "specd_tokenizer_new": (c_int, POINTER(s.TokenizerOptions), POINTER(c_void_p)),
    "specd_tokenizer_free": (None, c_void_p),
    "specd_grammar_options_init": (None, POINTER(s.GrammarOptions)),
    "specd_grammar_compile": (c_int, c_void_p, POINTER(s.GrammarOptions), POINTER(c_void_p)),
    "specd_grammar_free": (None, c_void_p),
    "specd_get_grammar_info": (c_int, c_void_p, POINTER(s.GrammarInfo)),
    "specd_matcher_new": (c_int, c_void_p, s.Ids, POINTER(c_void_p)),
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
    "specd_mask_rows_init": (None, POINTER(s.MaskRows)),
    "specd_fill_masks": (c_int, POINTER(c_void_p), c_uint64, POINTER(s.MaskRows)),
}

_SIZED: dict[str, type[Any]] = {
    "specd_options_init": s.Options, "specd_tensor_init": s.Tensor, "specd_params_init": s.Params,
    "specd_join_options_init": s.JoinOptions, "specd_engine_stats_init": s.EngineStats,
    "specd_rows_init": s.Rows, "specd_sampling_init": s.Sampling,
    "specd_tokenizer_options_init": s.TokenizerOptions,
    "specd_grammar_options_init": s.GrammarOptions, "specd_mask_rows_init": s.MaskRows,
    "specd_batch_init": s.Batch, "specd_batch_results_init": s.BatchResults,
    "specd_openings_init": s.Openings,
}

_SONAME = "libspecd.so.0"
_library: ctypes.CDLL | None = None


def load() -> Any:
    """Loads the library once and returns it. SPECD_LIBRARY names it. Otherwise load looks where a
    wheel and an installation have it, relative to this package, and then asks the system's loader."""
    global _library
    if _library is None:
        _library = _declare(_find())
    return _library


def _find() -> ctypes.CDLL:
    named = os.environ.get("SPECD_LIBRARY")
    if named:
        candidates = [named]
    else:
        # A wheel has the library inside the package. In an installation PREFIX/lib/specd/python/specd/
        # is the package, and PREFIX/lib/ has the library.
        package = pathlib.Path(__file__).resolve().parent
        candidates = [str(package / "lib" / _SONAME), str(package.parents[2] / _SONAME), _SONAME]
    tried = []
    for candidate in candidates:
        try:
            return ctypes.CDLL(candidate)
        except OSError as error:
            tried.append(f"  {candidate}: {error}")
    where = "SPECD_LIBRARY names it" if named else "SPECD_LIBRARY is not set"
    raise ImportError(f"libspecd was not found ({where}). Tried:\n" + "\n".join(tried) +
                      f"\nSet SPECD_LIBRARY to the path of {_SONAME}.")


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
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


def last_error() -> str:
    """Returns the library's last error of the calling thread, in words; "" if there was none. In
    embedded mode it also gives the reason for results with the status "device_error" that a call of
    this thread has brought; Result.detail has it in every thread. A daemon logs that reason."""
    text: bytes = load().specd_last_error()
    return text.decode(errors="backslashreplace")  # it may have a path that is no UTF-8


def check(code: int) -> int:
    """Raises Error if `code` is one; returns it otherwise (0, or a positive answer)."""
    if code < 0:
        raise Error(code, load().specd_code_name(code).decode(), last_error())
    return code


def opening_warnings(engine: Any) -> list[str]:
    """The warnings of the engine's last opening."""
    # A schema's keys may have any characters: only a line feed parts two warnings.
    lines = load().specd_opening_warnings(engine).decode(errors="replace").split("\n")
    return [line for line in lines if line]


def call_into(codes: list[int], function: Callable[..., int], *arguments: Any) -> None:
    """Calls a function of the library and appends its code to the list `codes`. C does both, so an
    interrupt comes before the call or after both. `codes` therefore says whether the call was
    made."""
    codes.extend(map(function, *([argument] for argument in arguments)))


def text_bytes(text: object, name: str) -> bytes:
    """The text as C takes it. A NUL would end the text there, and the rest would be lost."""
    if not isinstance(text, str):
        raise refusal(f"{name}: {text!r} is not a string")
    if "\0" in text:
        raise refusal(f"{name}: {text!r} has a NUL character; remove it")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise refusal(f"{name}: {error}") from None


_Struct = TypeVar("_Struct", bound=ctypes.Structure)


def initialised(struct: type[_Struct], init: str) -> _Struct:
    """A struct with the library's defaults."""
    value = struct()
    getattr(load(), init)(ctypes.byref(value))
    return value


def sized(struct: Any, count: int) -> Any:
    """An array of `count` structs that are zero but for struct_size."""
    table = (struct * count)()
    for element in table:
        element.struct_size = ctypes.sizeof(struct)
    return table
