#include "speculative/grammar/xgrammar_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/core/check.h"
#include "speculative/grammar/deep_stack.h"
#include "speculative/grammar/slow_compile.h"
#include "speculative/grammar/xgrammar_install.h"
#include "speculative/grammar/xgrammar_matcher.h"
#include "speculative/grammar/xgrammar_methods.h"
#include "speculative/grammar/xgrammar_tags.h"
#include "speculative/grammar/xgrammar_text.h"
#include "speculative/grammar/xgrammar_warnings.h"

namespace specd::grammar {
namespace {

// The library recurses along references as deep as the text leads it, and its own guard does not
// cover that. Of 8 MiB, a chain of 9,000 references (270 KB of text) leaves something, and one of
// 14,000 overflows: some 20 bytes of stack for each byte of text. Ten times that is taken; memory
// is taken as it is reached.
constexpr size_t kStackBytesMin = size_t{16} << 20;
constexpr size_t kStackBytesPerTextByte = 256;

class XgrammarGrammar final : public CompiledGrammar,
                              public std::enable_shared_from_this<XgrammarGrammar> {
 public:
  XgrammarGrammar(std::shared_ptr<const XgrammarShared> shared, TvmValue grammar,
                  std::vector<std::string> warnings, size_t size_bytes)
      : shared_(std::move(shared)),
        grammar_(std::move(grammar)),
        warnings_(std::move(warnings)),
        size_bytes_(size_bytes) {}

  std::unique_ptr<GrammarMatcher> NewMatcher(const MatcherOptions& options) const override {
    return XgrammarMatcher::Create(*shared_, shared_from_this(), grammar_, options);
  }
  std::span<const std::string> warnings() const override { return warnings_; }
  size_t size_bytes() const override { return size_bytes_; }

 private:
  std::shared_ptr<const XgrammarShared> shared_;
  TvmValue grammar_;
  std::vector<std::string> warnings_;
  size_t size_bytes_;
};

absl::Status CompileError(const absl::Status& status) {
  const std::string_view text(status.message().data(), status.message().size());
  const std::string message = fmt::format("xgrammar: {}", TrimError(text));
  if (text.find("not supported") != text.npos) return absl::UnimplementedError(message);
  if (text.find("RecursionGuard") != text.npos || text.find("bad_alloc") != text.npos)
    return absl::ResourceExhaustedError(message);
  return absl::InvalidArgumentError(message);
}

// Values without a schema have the library's own separators, with any separators of the schema.
void RemoveSpaces(std::string& ebnf) {
  for (const std::string_view rule :
       {"\nbasic_array_items ::= ((\", \"", "\nbasic_object_properties ::= ((\", \""}) {
    const size_t begin = ebnf.find(rule);
    if (begin != ebnf.npos) ebnf.erase(begin + rule.size() - 2, 1);
  }
}

class XgrammarBackend final : public GrammarBackend,
                              public std::enable_shared_from_this<XgrammarBackend> {
 public:
  XgrammarBackend(std::shared_ptr<const XgrammarShared> shared, TvmValue compiler,
                  int64_t compile_ms_max)
      : shared_(std::move(shared)),
        compiler_(std::move(compiler)),
        compile_ms_max_(compile_ms_max) {}

  std::string_view name() const override { return "xgrammar"; }

  absl::StatusOr<std::shared_ptr<const CompiledGrammar>> Compile(
      const GrammarRequest& request) const override {
    if (request.text.size() > kGrammarTextBytesMax) {
      return absl::ResourceExhaustedError(fmt::format("the text has {} bytes, and the limit is {}",
                                                      request.text.size(), kGrammarTextBytesMax));
    }
    return SlowCompile({.deadline_ms = compile_ms_max_},
                       [self = shared_from_this(), request] { return self->CompileNow(request); });
  }

 private:
  CompileResult CompileNow(const GrammarRequest& request) const {
    std::vector<std::string> warnings;
    absl::StatusOr<TvmValue> grammar = TvmValue();
    const size_t stack_bytes = kStackBytesMin + request.text.size() * kStackBytesPerTextByte;
    absl::Status status =
        RunOnDeepStack(stack_bytes, [&] { grammar = CompileKind(request, warnings); });
    if (!status.ok()) return status;
    if (!grammar.ok()) return grammar.status();
    const XgrammarMethods& methods = shared_->methods;
    absl::StatusOr<TvmValue> value =
        methods.library->Call(methods.memory_size_bytes, {grammar->view()});
    absl::StatusOr<int64_t> size_bytes = value.ok() ? value->ToInt() : value.status();
    if (!size_bytes.ok()) return size_bytes.status();
    return std::make_shared<const XgrammarGrammar>(
        shared_, *std::move(grammar), std::move(warnings), static_cast<size_t>(*size_bytes));
  }

  // The options of a schema, in the order of the library's arguments.
  struct SchemaArguments {
    TvmValue text;
    tvm::Any any_whitespace;
    tvm::Any indent;
    TvmValue separators;
    tvm::Any strict_mode;
    tvm::Any whitespace_max;
  };

  absl::StatusOr<TvmValue> CompileKind(const GrammarRequest& request,
                                       std::vector<std::string>& warnings) const {
    const XgrammarMethods& methods = shared_->methods;
    switch (request.kind) {
      case GrammarKind::kNone:
        break;
      case GrammarKind::kJsonSchema:
        return CompileSchema(request.text, request.whitespace, warnings);
      case GrammarKind::kJsonObject:
        if (!request.text.empty()) {
          return absl::InvalidArgumentError("json_object takes no text; give a schema as json");
        }
        return CompileSchema(R"({"type":"object"})", request.whitespace, warnings);
      case GrammarKind::kRegex: {
        if (absl::Status status = CheckPattern(request.text); !status.ok()) return status;
        return CompileText(methods.compile_regex, request.text);
      }
      case GrammarKind::kEbnf: {
        if (absl::Status status = CheckEbnf(request.text); !status.ok()) return status;
        return CompileEbnf(request.text);
      }
      case GrammarKind::kChoice: {
        absl::StatusOr<std::string> ebnf = ChoiceToEbnf(request.text);
        if (!ebnf.ok()) return ebnf.status();
        return CompileEbnf(*ebnf);
      }
      case GrammarKind::kStructuralTag: {
        absl::StatusOr<std::string> tag = StructuralTagToXgrammar(
            request.text,
            [&](std::string_view schema,
                const std::string& pointer) -> absl::StatusOr<std::string> {
              absl::StatusOr<std::vector<std::string>> found = FindUnenforced(schema, pointer);
              if (!found.ok()) return found.status();
              warnings.insert(warnings.end(), found->begin(), found->end());
              return SchemaToEbnf(schema, request.whitespace);
            });
        if (!tag.ok()) return tag.status();
        return CompileText(methods.compile_structural_tag, *tag);
      }
    }
    return absl::InvalidArgumentError(fmt::format("kind {} is no constraint: give one of 1 to 6",
                                                  static_cast<uint32_t>(request.kind)));
  }

  absl::StatusOr<TvmValue> CompileText(TvmLibrary::Function function, std::string_view text) const {
    const TvmLibrary& library = *shared_->methods.library;
    absl::StatusOr<TvmValue> argument = library.MakeString(text);
    if (!argument.ok()) return argument.status();
    return Checked(library.Call(function, {compiler_.view(), argument->view()}));
  }

  absl::StatusOr<TvmValue> CompileEbnf(std::string_view text) const {
    const TvmLibrary& library = *shared_->methods.library;
    absl::StatusOr<TvmValue> argument = library.MakeString(text);
    absl::StatusOr<TvmValue> root = library.MakeString("root");
    if (!argument.ok()) return argument.status();
    if (!root.ok()) return root.status();
    return Checked(library.Call(shared_->methods.compile_ebnf,
                                {compiler_.view(), argument->view(), root->view()}));
  }

  absl::StatusOr<TvmValue> CompileSchema(std::string_view schema, Whitespace whitespace,
                                         std::vector<std::string>& warnings) const {
    absl::StatusOr<std::vector<std::string>> found = FindUnenforced(schema, "");
    if (!found.ok()) return found.status();
    warnings = *std::move(found);
    if (whitespace == Whitespace::kCompact) {
      absl::StatusOr<std::string> ebnf = SchemaToEbnf(schema, whitespace);
      if (!ebnf.ok()) return ebnf.status();
      return CompileEbnf(*ebnf);
    }
    absl::StatusOr<SchemaArguments> arguments = MakeArguments(schema, whitespace);
    if (!arguments.ok()) return arguments.status();
    const XgrammarMethods& methods = shared_->methods;
    return Checked(
        methods.library->Call(methods.compile_json_schema,
                              {compiler_.view(), arguments->text.view(), arguments->any_whitespace,
                               arguments->indent, arguments->separators.view(),
                               arguments->strict_mode, arguments->whitespace_max, TvmBool(false)}));
  }

  absl::StatusOr<std::string> SchemaToEbnf(std::string_view schema, Whitespace whitespace) const {
    absl::StatusOr<SchemaArguments> arguments = MakeArguments(schema, whitespace);
    if (!arguments.ok()) return arguments.status();
    const XgrammarMethods& methods = shared_->methods;
    absl::StatusOr<TvmValue> grammar = Checked(
        methods.library->Call(methods.grammar_from_json_schema,
                              {arguments->text.view(), arguments->any_whitespace, arguments->indent,
                               arguments->separators.view(), arguments->strict_mode,
                               arguments->whitespace_max, TvmBool(false), TvmBool(false)}));
    if (!grammar.ok()) return grammar.status();
    absl::StatusOr<TvmValue> text =
        methods.library->Call(methods.grammar_to_string, {grammar->view()});
    absl::StatusOr<std::string> ebnf = text.ok() ? text->ToText() : text.status();
    if (ebnf.ok() && whitespace == Whitespace::kCompact) RemoveSpaces(*ebnf);
    return ebnf;
  }

  absl::StatusOr<SchemaArguments> MakeArguments(std::string_view schema,
                                                Whitespace whitespace) const {
    const TvmLibrary& library = *shared_->methods.library;
    absl::StatusOr<TvmValue> text = library.MakeString(schema);
    absl::StatusOr<TvmValue> comma = library.MakeString(",");
    absl::StatusOr<TvmValue> colon = library.MakeString(":");
    if (!text.ok()) return text.status();
    if (!comma.ok()) return comma.status();
    if (!colon.ok()) return colon.status();
    const tvm::Any pair[] = {comma->view(), colon->view()};
    absl::StatusOr<TvmValue> separators = library.MakeArray(pair);
    if (!separators.ok()) return separators.status();
    const bool is_flexible = whitespace == Whitespace::kFlexible;
    // In strict mode an object without additionalProperties would allow none.
    return SchemaArguments{.text = *std::move(text),
                           .any_whitespace = TvmBool(is_flexible),
                           .indent = TvmNone(),
                           .separators = is_flexible ? TvmValue() : *std::move(separators),
                           .strict_mode = TvmBool(false),
                           .whitespace_max = is_flexible ? TvmInt(kWhitespaceMax) : TvmNone()};
  }

  static absl::StatusOr<TvmValue> Checked(absl::StatusOr<TvmValue> value) {
    if (!value.ok()) return CompileError(value.status());
    if (!value->IsObject()) return absl::InternalError("xgrammar: the answer is no object");
    return value;
  }

  std::shared_ptr<const XgrammarShared> shared_;
  TvmValue compiler_;
  const int64_t compile_ms_max_;
};

// An id without text is empty for the library, which then never allows it.
absl::StatusOr<TvmValue> MakeTokenizer(const XgrammarOptions& options, XgrammarShared& shared) {
  const TvmLibrary& library = *shared.methods.library;
  const int32_t num_ids = std::min(options.vocab_size, options.vocabulary->size());
  std::vector<TvmValue> tokens;
  std::vector<tvm::Any> views;
  tokens.reserve(static_cast<size_t>(num_ids));
  views.reserve(static_cast<size_t>(num_ids));
  for (TokenId id = 0; id < num_ids; ++id) {
    std::string_view bytes = options.vocabulary->Bytes(id);
    if (options.vocabulary->IsSpecial(id)) bytes = {};
    if (!bytes.empty()) {
      shared.text_ids[static_cast<size_t>(id) / 32] |= 1u << (static_cast<uint32_t>(id) % 32);
    }
    absl::StatusOr<TvmValue> token = library.MakeBytes(bytes);
    if (!token.ok()) return token.status();
    tokens.push_back(*std::move(token));
    views.push_back(tokens.back().view());
  }
  absl::StatusOr<TvmValue> vocabulary = library.MakeArray(views);
  // No id is a stop id for the library (xgrammar_matcher.h). Without a list it would guess some.
  absl::StatusOr<TvmValue> stop_ids = library.MakeArray({});
  if (!vocabulary.ok()) return vocabulary.status();
  if (!stop_ids.ok()) return stop_ids.status();
  return library.Call(shared.methods.new_tokenizer,
                      {vocabulary->view(), TvmInt(kXgrammarRawVocabulary),
                       TvmInt(options.vocab_size), stop_ids->view(), TvmBool(false)});
}

}  // namespace

absl::StatusOr<std::shared_ptr<GrammarBackend>> LoadXgrammar(const XgrammarOptions& options) {
  SPECD_CHECK(options.vocabulary != nullptr && options.num_compile_threads > 0);
  if (options.vocab_size < 1 || options.vocab_size > kVocabSizeMax) {
    return absl::InvalidArgumentError(
        fmt::format("vocab_size is {}: give 1 to {}", options.vocab_size, kVocabSizeMax));
  }
  absl::StatusOr<TvmPaths> paths = FindXgrammar(options.directory);
  if (!paths.ok()) return paths.status();
  absl::StatusOr<const TvmLibrary*> library = TvmLibrary::Load(*paths);
  if (!library.ok()) return library.status();
  absl::StatusOr<XgrammarMethods> methods = XgrammarMethods::Find(*library);
  if (!methods.ok()) return methods.status();

  auto shared = std::make_shared<XgrammarShared>();
  shared->methods = *methods;
  shared->vocab_size = options.vocab_size;
  shared->text_ids.resize((static_cast<size_t>(options.vocab_size) + 31) / 32);
  absl::StatusOr<TvmValue> tokenizer = MakeTokenizer(options, *shared);
  if (!tokenizer.ok()) return tokenizer.status();
  // No cache: the caller keeps compiled grammars, and a cache of both would hold each twice.
  absl::StatusOr<TvmValue> compiler = (*library)->Call(
      methods->new_compiler,
      {tokenizer->view(), TvmInt(options.num_compile_threads), TvmBool(false), TvmInt(-1)});
  if (!compiler.ok()) return compiler.status();
  return std::make_shared<XgrammarBackend>(std::move(shared), *std::move(compiler),
                                           options.compile_ms_max);
}

}  // namespace specd::grammar
