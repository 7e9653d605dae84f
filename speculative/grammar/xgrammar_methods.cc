#include "speculative/grammar/xgrammar_methods.h"

#include <string>

namespace specd::grammar {

absl::StatusOr<XgrammarMethods> XgrammarMethods::Find(const TvmLibrary* library) {
  XgrammarMethods methods;
  methods.library = library;
  struct Row {
    TvmLibrary::Function* function;
    const char* class_name;
    const char* method;
  };
  const Row rows[] = {
      {&methods.new_tokenizer, "TokenizerInfo", "__ffi_init__"},
      {&methods.new_compiler, "GrammarCompiler", "__ffi_init__"},
      {&methods.compile_json_schema, "GrammarCompiler", "compile_json_schema"},
      {&methods.compile_regex, "GrammarCompiler", "compile_regex"},
      {&methods.compile_ebnf, "GrammarCompiler", "compile_grammar_from_strings"},
      {&methods.compile_structural_tag, "GrammarCompiler", "compile_structural_tag"},
      {&methods.grammar_from_json_schema, "Grammar", "from_json_schema"},
      {&methods.grammar_to_string, "Grammar", "to_string"},
      {&methods.memory_size_bytes, "CompiledGrammar", "memory_size_bytes"},
      {&methods.new_matcher, "GrammarMatcher", "__ffi_init__"},
      {&methods.accept_token, "GrammarMatcher", "accept_token"},
      {&methods.accept_text, "GrammarMatcher", "accept_string"},
      {&methods.fill_mask, "GrammarMatcher", "fill_next_token_bitmask"},
      {&methods.rollback, "GrammarMatcher", "rollback"},
      {&methods.fork, "GrammarMatcher", "fork"},
      {&methods.is_completed, "GrammarMatcher", "is_completed"},
      {&methods.forced_text, "GrammarMatcher", "find_jump_forward_string"},
  };
  for (const Row& row : rows) {
    auto function =
        library->FindMethod(std::string("xgrammar.tvm_ffi_binding.") + row.class_name, row.method);
    if (!function.ok()) return function.status();
    *row.function = *function;
  }
  return methods;
}

}  // namespace specd::grammar
