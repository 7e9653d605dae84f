// XgrammarMethods holds the methods of the xgrammar library that the backend and its matchers call.
//
// Their arguments are those of version 0.2.8 (kXgrammarVersion). The comments name them in order;
// `self` is the object that a method belongs to.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "speculative/grammar/tvm_library.h"

namespace specd::grammar {

struct XgrammarMethods {
  const TvmLibrary* library = nullptr;

  // vocabulary (array of bytes), vocabulary type, vocabulary size, stop ids, add_prefix_space
  TvmLibrary::Function new_tokenizer;
  // tokenizer, threads, cache is on, cache size in bytes
  TvmLibrary::Function new_compiler;
  // self, schema, any_whitespace, indent, separators, strict_mode, max_whitespace_cnt, any_order
  TvmLibrary::Function compile_json_schema;
  TvmLibrary::Function compile_regex;           // self, pattern
  TvmLibrary::Function compile_ebnf;            // self, text, root
  TvmLibrary::Function compile_structural_tag;  // self, text
  // schema, any_whitespace, indent, separators, strict_mode, max_whitespace_cnt, print, any_order
  TvmLibrary::Function grammar_from_json_schema;
  TvmLibrary::Function grammar_to_string;  // self
  TvmLibrary::Function memory_size_bytes;  // self
  // compiled, stop ids or none, terminate_without_stop_token, max_rollback_tokens, temperature
  TvmLibrary::Function new_matcher;
  TvmLibrary::Function accept_token;  // self, id, debug_print
  TvmLibrary::Function accept_text;   // self, bytes, debug_print
  TvmLibrary::Function fill_mask;     // self, tensor, row, debug_print
  TvmLibrary::Function rollback;      // self, number of ids
  TvmLibrary::Function fork;          // self
  TvmLibrary::Function is_completed;  // self
  TvmLibrary::Function forced_text;   // self

  static absl::StatusOr<XgrammarMethods> Find(const TvmLibrary* library);
};

// Vocabulary types of the library: every token is given as its bytes.
inline constexpr int64_t kXgrammarRawVocabulary = 0;

}  // namespace specd::grammar
