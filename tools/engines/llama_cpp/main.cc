// specd-llama-engine turns flags into an Engine, and prints texts and a table.

#include <fmt/format.h>
#include <llama.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "daemon/base/command_line.h"
#include "specd/specd.h"
#include "tools/engines/llama_cpp/cached_model.h"
#include "tools/engines/llama_cpp/engine.h"
#include "tools/engines/llama_cpp/params.h"
#include "tools/engines/llama_cpp/vocabulary.h"
#include "tools/toy_engine/request_ids.h"

ABSL_FLAG(std::string, specd, "embedded:cpu",
          "where the verifier runs: unix:/path/to/specd.sock or embedded:cpu");
ABSL_FLAG(std::string, model, "", "GGUF file of the model; required");
ABSL_FLAG(std::string, draft_model, "",
          "GGUF file of a smaller model with the same ids; without it drafts are n-grams");
ABSL_FLAG(std::string, drafts, "auto",
          "sampled (drawn from the draft model), best (its best ids), ngram, or auto: best where "
          "the text does not depend on drafts");
ABSL_FLAG(uint32_t, draft, 5, "draft tokens of a sequence in one round, 0 .. 62");
ABSL_FLAG(uint32_t, ngram, 3, "the longest n-gram that is looked up, 1 .. 64");
ABSL_FLAG(std::string, tree, "",
          "n-gram drafts are trees: WxD for at most W children of a place and D tokens of a path, "
          "with at most --draft tokens in all, such as --tree=2x4 --draft=12");
ABSL_FLAG(std::string, prompt, "The daemon|A round|The engine|A draft token",
          "prompts, separated by |; prompts may also follow the flags as arguments, and then this "
          "one is not used");
ABSL_FLAG(
    std::string, params, "temperature=0.8",
    "sampling parameters of docs/PARAMETERS.md that are one number, as name=value,name=value");
ABSL_FLAG(uint32_t, max_tokens, 80, "per prompt");
ABSL_FLAG(uint64_t, seed, 1, "of the first prompt; the next one has seed + 1, and so on");
ABSL_FLAG(std::string, stop, "",
          "stop strings, separated by |; they need a daemon with a tokenizer, or --tokenizer");
ABSL_FLAG(
    std::string, tokenizer, "",
    "the model's tokenizer, such as the GGUF file itself, for stop strings; a daemon with another "
    "one refuses the engine");
ABSL_FLAG(uint32_t, max_batch, 1,
          "sequences in one forward, 1 .. 64; with more prompts, one begins when another ends");
ABSL_FLAG(uint32_t, context, 0,
          "positions of a sequence; 0: as many as the model was trained with");
ABSL_FLAG(uint32_t, threads, 0, "of a forward; 0: one for each CPU");
ABSL_FLAG(std::string, print, "text", "what to print for each prompt: text, ids or none");

namespace specd::llama_cpp {
namespace {

constexpr char kUsage[] =
    "generates text with a GGUF model of llama.cpp; specd verifies drafts and samples tokens.\n\n"
    "  specd-llama-engine --model=target.gguf --draft_model=assistant.gguf 'The daemon'\n"
    "  specd-llama-engine --specd=unix:/run/specd/specd.sock --model=target.gguf 'The daemon'\n\n"
    "Exit status: 0 done; 1 an error; 2 bad flags; 3 the daemon is gone.";

constexpr int kExitError = 1;
constexpr int kExitDisconnected = 3;
// From 64 positions on, libllama's attention on a CPU sums in another order.
constexpr uint32_t kDraftMax = 62;
constexpr uint32_t kBatchMax = 64;
constexpr uint32_t kNgramMax = 64;

template <typename T>
struct Choice {
  std::string_view name;
  T value;
};
constexpr Choice<Drafts> kDrafts[] = {{"auto", Drafts::kAuto},
                                      {"sampled", Drafts::kSampled},
                                      {"best", Drafts::kBest},
                                      {"ngram", Drafts::kNgram}};

enum class Print { kText, kIds, kNone };
constexpr Choice<Print> kPrints[] = {
    {"text", Print::kText}, {"ids", Print::kIds}, {"none", Print::kNone}};

constexpr const char* kFinishNames[] = {"none", "stop", "length", "abort", "error"};

int Fail(int exit_code, std::string_view message) {
  fmt::print(stderr, "specd-llama-engine: {}\n", message);
  return exit_code;
}

template <typename T, size_t N>
absl::StatusOr<T> ReadChoice(std::string_view flag, std::string_view text,
                             const Choice<T> (&choices)[N]) {
  std::string names;
  for (const Choice<T>& choice : choices) {
    if (text == choice.name) return choice.value;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", choice.name);
  }
  return absl::InvalidArgumentError(fmt::format("{}: \"{}\" is not one of {}", flag, text, names));
}

absl::Status CheckRange(std::string_view flag, uint64_t value, uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{}: {} is outside {} .. {}", flag, value, least, most));
}

std::vector<std::string> SplitAtBars(const std::string& text) {
  return absl::StrSplit(text, '|', absl::SkipEmpty());
}

struct TreeShape {
  uint32_t width = 1;
  uint32_t depth = kDraftMax;
};
absl::StatusOr<TreeShape> ReadTree(Drafts drafts, const Numbers& params) {
  TreeShape shape;
  const std::string text = absl::GetFlag(FLAGS_tree);
  if (text.empty()) return shape;
  const std::vector<std::string> parts = absl::StrSplit(text, 'x');
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &shape.width) ||
      !absl::SimpleAtoi(parts[1], &shape.depth) || shape.width < 2 || shape.width > kDraftMax ||
      shape.depth < 1 || shape.depth > kDraftMax) {
    return absl::InvalidArgumentError(fmt::format(
        "tree: \"{}\" is not WxD with a width of 2 .. {} and a depth of 1 .. {}; give --tree=2x4",
        text, kDraftMax, kDraftMax));
  }
  if (drafts != Drafts::kNgram) {
    return absl::InvalidArgumentError(
        "tree: trees are drafts of n-grams; leave --draft_model and --drafts out");
  }
  if (const absl::Status status = CheckTakesTrees(params); !status.ok()) return status;
  const uint64_t ids = uint64_t{absl::GetFlag(FLAGS_max_batch)} * (1 + absl::GetFlag(FLAGS_draft));
  if (ids <= kLlamaSequencesMax) return shape;
  return absl::InvalidArgumentError(
      fmt::format("max_batch: sequences with trees of {} tokens take {} ids of libllama, which has "
                  "{}; give fewer, or a smaller --draft",
                  absl::GetFlag(FLAGS_draft), ids, kLlamaSequencesMax));
}

// The flags that need no model, checked.
absl::StatusOr<EngineOptions> ReadFlags() {
  for (const absl::Status& status :
       {CheckRange("draft", absl::GetFlag(FLAGS_draft), 0, kDraftMax),
        CheckRange("ngram", absl::GetFlag(FLAGS_ngram), 1, kNgramMax),
        CheckRange("max_batch", absl::GetFlag(FLAGS_max_batch), 1, kBatchMax),
        CheckRange("max_tokens", absl::GetFlag(FLAGS_max_tokens), 1, INT32_MAX)}) {
    if (!status.ok()) return status;
  }
  const absl::StatusOr<Drafts> drafts = ReadChoice("drafts", absl::GetFlag(FLAGS_drafts), kDrafts);
  if (!drafts.ok()) return drafts.status();
  absl::StatusOr<Numbers> params = ReadParams(absl::GetFlag(FLAGS_params));
  if (!params.ok()) return params.status();
  const bool has_draft_model = !absl::GetFlag(FLAGS_draft_model).empty();
  const bool needs_one = *drafts == Drafts::kSampled || *drafts == Drafts::kBest;
  if (needs_one != has_draft_model && *drafts != Drafts::kAuto) {
    return absl::InvalidArgumentError(
        needs_one ? "drafts: sampled and best need a draft model; set --draft_model"
                  : "drafts: ngram has no use for a draft model; leave --draft_model out");
  }
  const Drafts chosen = ChooseDrafts(*drafts, has_draft_model, *params);
  if (chosen == Drafts::kSampled) AddDraftSteps(&*params);
  const absl::StatusOr<TreeShape> tree = ReadTree(chosen, *params);
  if (!tree.ok()) return tree.status();
  return EngineOptions{.uri = absl::GetFlag(FLAGS_specd),
                       .max_batch = absl::GetFlag(FLAGS_max_batch),
                       .max_draft = absl::GetFlag(FLAGS_draft),
                       .drafts = chosen,
                       .ngram = absl::GetFlag(FLAGS_ngram),
                       .tree_width = tree->width,
                       .tree_depth = tree->depth,
                       .params = *std::move(params),
                       .max_tokens = absl::GetFlag(FLAGS_max_tokens),
                       .seed = absl::GetFlag(FLAGS_seed),
                       .stop_strings = SplitAtBars(absl::GetFlag(FLAGS_stop)),
                       .tokenizer = absl::GetFlag(FLAGS_tokenizer)};
}

absl::StatusOr<std::unique_ptr<CachedModel>> LoadModel(std::string_view name,
                                                       const std::string& path, uint32_t num_rows,
                                                       uint32_t num_paths) {
  const uint32_t threads = absl::GetFlag(FLAGS_threads);
  return CachedModel::Load(
      {.name = std::string(name),
       .path = path,
       .num_slots = absl::GetFlag(FLAGS_max_batch),
       .num_rows = num_rows,
       .num_paths = num_paths,
       .context = absl::GetFlag(FLAGS_context),
       .threads = threads != 0 ? threads : std::max(1u, std::thread::hardware_concurrency())});
}

// num_positions: those that all models have.
absl::StatusOr<std::vector<Prompt>> ReadPrompts(const std::vector<std::string>& texts,
                                                const llama_vocab* vocab, uint32_t num_positions) {
  const std::vector<std::string> request_ids = toy::MakeRequestIds(texts);
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < texts.size(); ++i) {
    Prompt prompt{.request_id = request_ids[i], .ids = Tokenize(vocab, texts[i])};
    const uint64_t positions = prompt.ids.size() + uint64_t{absl::GetFlag(FLAGS_max_tokens)};
    if (prompt.ids.empty()) return absl::InvalidArgumentError("prompt: a text has no token");
    if (positions > num_positions) {
      return absl::InvalidArgumentError(fmt::format(
          "max_tokens: {} after a prompt of {} tokens, and the models have {} positions; set it to "
          "{} or less",
          absl::GetFlag(FLAGS_max_tokens), prompt.ids.size(), num_positions,
          std::max<int64_t>(0, int64_t{num_positions} - static_cast<int64_t>(prompt.ids.size()))));
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

void Report(const std::vector<Prompt>& prompts, const std::vector<Generation>& generations,
            const llama_vocab* vocab, Print print) {
  for (size_t i = 0; i < prompts.size() && print != Print::kNone; ++i) {
    if (print == Print::kIds) {
      fmt::print("{}: {}\n", prompts[i].request_id, fmt::join(generations[i].tokens, " "));
    } else {
      fmt::print("== {}\n{}\n\n", prompts[i].request_id, TextOf(vocab, generations[i].tokens));
    }
  }
  if (print == Print::kIds) return;
  fmt::print("{:24} {:>7} {:>7} {:>8} {:>9}  finish\n", "prompt", "tokens", "rounds", "drafted",
             "accepted");
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Generation& made = generations[i];
    fmt::print("{:24} {:7} {:7} {:8} {:9}  {}\n", prompts[i].request_id, made.tokens.size(),
               made.num_rounds, made.num_drafted, made.num_accepted,
               kFinishNames[made.finish_reason]);
  }
}

absl::Status Generate(const EngineOptions& options, Print print,
                      const std::vector<std::string>& texts) {
  auto model = LoadModel("model", absl::GetFlag(FLAGS_model), options.max_draft + 1,
                         options.tree_width > 1 ? options.max_draft : 0);
  if (!model.ok()) return model.status();
  const llama_vocab* vocab = (*model)->vocab();
  uint32_t num_positions = (*model)->num_positions();
  std::unique_ptr<CachedModel> draft_model;
  const std::string path = absl::GetFlag(FLAGS_draft_model);
  if (!path.empty() && options.max_draft > 0) {  // without drafts the draft model does nothing
    auto loaded = LoadModel("draft_model", path, 1, 0);
    if (!loaded.ok()) return loaded.status();
    draft_model = *std::move(loaded);
    const absl::Status status = CheckSameVocabulary(vocab, draft_model->vocab());
    if (!status.ok()) return status;
    num_positions = std::min(num_positions, draft_model->num_positions());
  }
  const auto prompts = ReadPrompts(texts, vocab, num_positions);
  if (!prompts.ok()) return prompts.status();
  Engine engine(options, *std::move(model), std::move(draft_model));
  std::vector<Generation> generations;
  if (const absl::Status status = engine.Run(*prompts, &generations); !status.ok()) return status;
  Report(*prompts, generations, vocab, print);
  if (print == Print::kIds) return absl::OkStatus();
  using Milliseconds = std::chrono::duration<double, std::milli>;
  fmt::print("forwards of {} positions at least: {:.1f} ms; specd: {:.1f} ms\n",
             engine.model().fewest_positions(), Milliseconds(engine.forward_time()).count(),
             Milliseconds(engine.verify_time()).count());
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  const std::vector<char*> arguments =
      ParseFlags(argc, argv,
                 {.usage = kUsage,
                  .source = "tools/engines/llama_cpp/main.cc",
                  .version = fmt::format("specd-llama-engine {}, libllama {}", specd_version(),
                                         llama_version())});
  std::vector<std::string> texts(arguments.begin() + 1, arguments.end());
  if (texts.empty()) texts = SplitAtBars(absl::GetFlag(FLAGS_prompt));

  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level == GGML_LOG_LEVEL_ERROR) fmt::print(stderr, "{}", text);
      },
      nullptr);
  if (absl::GetFlag(FLAGS_model).empty()) {
    return Fail(kExitBadCommandLine, "model: there is none; give --model=FILE.gguf");
  }
  const absl::StatusOr<EngineOptions> options = ReadFlags();
  if (!options.ok()) return Fail(kExitBadCommandLine, std::string(options.status().message()));
  const absl::StatusOr<Print> print = ReadChoice("print", absl::GetFlag(FLAGS_print), kPrints);
  if (!print.ok()) return Fail(kExitBadCommandLine, std::string(print.status().message()));
  const absl::Status status = Generate(*options, *print, texts);
  if (status.ok()) return 0;
  return Fail(absl::IsUnavailable(status) ? kExitDisconnected : kExitError,
              std::string(status.message()));
}

}  // namespace
}  // namespace specd::llama_cpp

int main(int argc, char** argv) { return specd::llama_cpp::Main(argc, argv); }
