// Constraints through the C interface: what is refused by name, and whole outputs of random rows,
// with drafts and without, held against std::regex.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "detokenizer/tokenizer_json.h"
#include "ipc/include/specd/specd.h"
#include "tests/support/c_drafts.h"

namespace specd {
namespace {

constexpr uint32_t kVocab = 2048;  // ids of tools/toy_engine/tokenizer.json
constexpr int32_t kEos = 0;        // <|endoftext|>
constexpr uint32_t kMaxDraft = 4;

bool LastErrorHas(const std::string& part) {
  INFO(specd_last_error());
  return std::string(specd_last_error()).find(part) != std::string::npos;
}

specd_options ToyOptions() {
  static const int32_t eos[] = {kEos};
  specd_options options;
  specd_options_init(&options);
  options.vocab_size = kVocab;
  options.max_draft = kMaxDraft;
  options.threads = 1;
  options.tokenizer = SPECD_TOKENIZER;
  options.eos_token_ids = {eos, 1};
  return options;
}

specd_params Constrained(uint32_t kind, const char* text) {
  specd_params params;
  specd_params_init(&params);
  params.max_tokens = 200;
  params.has_seed = 1;
  params.seed = 1;
  params.grammar_kind = kind;
  params.grammar = text;
  return params;
}

// An engine over the toy tokenizer, whose rows depend on the position alone.
class ToyEngine {
 public:
  explicit ToyEngine(const specd_options& options = ToyOptions()) {
    const int code = specd_open("embedded:cpu", &options, &engine_);
    INFO(specd_last_error());
    REQUIRE(code == SPECD_OK);
    specd_region region;
    REQUIRE(specd_alloc(engine_, (kMaxDraft + 1) * kVocab * sizeof(float), &region) == SPECD_OK);
    rows_ = static_cast<float*>(region.data);
    specd_tensor tensor;
    specd_tensor_init(&tensor);
    tensor.region = region.id;
    tensor.num_rows = kMaxDraft + 1;
    REQUIRE(specd_bind(engine_, SPECD_TARGET_ROWS, &tensor) == SPECD_OK);
  }
  ~ToyEngine() { specd_close(engine_); }
  ToyEngine(const ToyEngine&) = delete;
  ToyEngine& operator=(const ToyEngine&) = delete;

  int TryOpen(const specd_params& params, specd_sequence* sequence) {
    specd_sequence_info info = Sized<specd_sequence_info>();
    const int code = specd_open_sequence(engine_, std::to_string(++names_).c_str(), &params, &info);
    *sequence = info.sequence;
    return code;
  }

  std::string Warnings() { return specd_opening_warnings(engine_); }

  struct Output {
    std::vector<int32_t> tokens;
    uint32_t finish_reason = SPECD_FINISH_NONE;
    int32_t stop_token = -1;
    uint32_t accepted = 0;
    uint64_t num_rounds = 0;
  };

  // Runs rounds to the end. Each has a draft of up to num_draft of these ids, drawn at random.
  Output Run(const specd_params& params, uint32_t num_draft, const std::vector<int32_t>& drafted) {
    return Run(params, num_draft, drafted, false);
  }
  // The same, with the ids that the constraint forces as drafts.
  Output RunForced(const specd_params& params) { return Run(params, 0, {}, true); }

  specd_engine* handle() const { return engine_; }

 private:
  Output Run(const specd_params& params, uint32_t num_draft, const std::vector<int32_t>& drafted,
             bool forced) {
    specd_sequence sequence = 0;
    const int code = TryOpen(params, &sequence);
    INFO(specd_last_error());
    REQUIRE(code == SPECD_OK);
    std::mt19937 random(static_cast<uint32_t>(params.seed) * 31 + num_draft);
    const std::array<uint32_t, kMaxDraft + 1> row_indices = {0, 1, 2, 3, 4};
    Output output;
    for (uint64_t round = 1; output.finish_reason == SPECD_FINISH_NONE; ++round) {
      std::vector<int32_t> draft(num_draft);
      for (int32_t& id : draft) id = forced ? 0 : drafted[random() % drafted.size()];
      if (forced) {
        draft.resize(kMaxDraft);
        num_draft = 0;
        REQUIRE(specd_forced_tokens(engine_, sequence, nullptr, 0, draft.data(), kMaxDraft,
                                    &num_draft) == SPECD_OK);
      }
      output.num_rounds = round;
      for (uint32_t i = 0; i <= num_draft; ++i) FillRow(i, params.seed, output.tokens.size() + i);
      const specd_draft part = ChainDraft(sequence, num_draft, draft.data(), row_indices.data());
      REQUIRE(specd_submit(engine_, round, &part, 1) == SPECD_OK);
      specd_completion done = SizedCompletion();
      REQUIRE(specd_poll(engine_, &done, 10000) == SPECD_OK);
      const specd_result& result = done.results[0];
      REQUIRE(result.status == SPECD_STATUS_OK);
      REQUIRE(result.num_kept > 0);
      output.tokens.insert(output.tokens.end(), result.tokens, result.tokens + result.num_kept);
      output.finish_reason = result.finish_reason;
      output.stop_token = result.stop_token;
      output.accepted += result.num_accepted;
    }
    REQUIRE(specd_close_sequence(engine_, sequence) == SPECD_OK);
    return output;
  }

  void FillRow(uint32_t row, uint64_t seed, uint64_t position) {
    std::mt19937_64 random(seed * 1000 + position);
    for (uint32_t id = 0; id < kVocab; ++id) {
      rows_[row * kVocab + id] = static_cast<float>(random() % 4096) / 1024.0f;
    }
  }

  specd_engine* engine_ = nullptr;
  float* rows_ = nullptr;
  int names_ = 0;
};

class ToyText {
 public:
  ToyText() {
    absl::StatusOr<Vocabulary> loaded = LoadTokenizerJson(SPECD_TOKENIZER);
    REQUIRE(loaded.ok());
    vocabulary_ = *std::move(loaded);
    REQUIRE(vocabulary_.size() == static_cast<int32_t>(kVocab));
  }

  std::string TextOf(const ToyEngine::Output& output) const {
    std::string text;
    for (const int32_t id : output.tokens) {
      if (id != output.stop_token) text += vocabulary_.Bytes(id);
    }
    return text;
  }

  // The ids whose text has these characters alone.
  std::vector<int32_t> IdsOf(std::string_view characters) const {
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < vocabulary_.size(); ++id) {
      const std::string_view bytes = vocabulary_.Bytes(id);
      const bool fits = bytes.find_first_not_of(characters) == std::string_view::npos;
      if (!bytes.empty() && !vocabulary_.IsAdded(id) && fits) ids.push_back(id);
    }
    return ids;
  }

 private:
  Vocabulary vocabulary_;
};

TEST_SUITE("unit") {
  TEST_CASE("forced ids: drafts that the constraint accepts, and nothing where there is a choice") {
    ToyEngine engine;
    const ToyText text;
    const auto forced = [&](specd_sequence sequence, const std::vector<int32_t>& prefix,
                            uint32_t max_ids = 8) {
      std::vector<int32_t> ids(max_ids, -7);
      uint32_t count = 99;
      const int code =
          specd_forced_tokens(engine.handle(), sequence, prefix.data(),
                              static_cast<uint32_t>(prefix.size()), ids.data(), max_ids, &count);
      INFO(specd_last_error());
      REQUIRE(code == SPECD_OK);
      REQUIRE(count <= max_ids);
      for (size_t i = count; i < ids.size(); ++i) REQUIRE(ids[i] == -7);
      ids.resize(count);
      return ids;
    };
    specd_sequence sequence = 0;
    REQUIRE(engine.TryOpen(Constrained(SPECD_GRAMMAR_REGEX, "The daemon verifies[0-9]+ drafts"),
                           &sequence) == SPECD_OK);
    const std::vector<int32_t> all = forced(sequence, {});
    ToyEngine::Output begun;
    begun.tokens = all;
    const std::string begin = text.TextOf(begun);
    REQUIRE(!begin.empty());
    CHECK(std::string("The daemon verifies").starts_with(begin));
    // They go on behind a prefix, a part at a time, and a sequence is not changed by the question.
    REQUIRE(all.size() >= 2);
    for (size_t k = 1; k < all.size(); ++k) {
      const std::vector<int32_t> prefix(all.begin(), all.begin() + static_cast<int64_t>(k));
      const std::vector<int32_t> rest(all.begin() + static_cast<int64_t>(k), all.end());
      if (prefix.size() <= kMaxDraft) CHECK(forced(sequence, prefix) == rest);
      CHECK(forced(sequence, {}, static_cast<uint32_t>(k)) == prefix);
    }
    CHECK(forced(sequence, {all[1]}).empty());  // the constraint forbids this prefix
    CHECK(forced(sequence, {-1}).empty());
    // Where there is a choice, and without a constraint, nothing is forced.
    specd_sequence open = 0;
    REQUIRE(engine.TryOpen(Constrained(SPECD_GRAMMAR_REGEX, "[ab]+"), &open) == SPECD_OK);
    CHECK(forced(open, {}).empty());
    REQUIRE(engine.TryOpen(Constrained(SPECD_GRAMMAR_NONE, nullptr), &open) == SPECD_OK);
    CHECK(forced(open, {}).empty());

    uint32_t count = 0;
    int32_t id = 0;
    CHECK(specd_forced_tokens(engine.handle(), sequence + (uint64_t{1} << 40), nullptr, 0, &id, 1,
                              &count) == SPECD_ERROR_NOT_FOUND);
    CHECK(specd_forced_tokens(engine.handle(), sequence, nullptr, 0, &id, 0, &count) ==
          SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("max_ids = 0"));
    const std::vector<int32_t> too_long(kMaxDraft + 1, all[0]);
    CHECK(specd_forced_tokens(engine.handle(), sequence, too_long.data(), kMaxDraft + 1, &id, 1,
                              &count) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("num_prefix = 5 is outside 0 .. 4"));
    CHECK(specd_forced_tokens(engine.handle(), sequence, nullptr, 1, &id, 1, &count) ==
          SPECD_ERROR_INVALID_ARGUMENT);
  }

  TEST_CASE("forced ids as drafts: the same text in fewer rounds, whatever the rows want") {
    ToyEngine engine;
    const specd_params params =
        Constrained(SPECD_GRAMMAR_REGEX, "The daemon verifies a round of drafts and drafts");
    const ToyEngine::Output plain = engine.Run(params, 0, {0});
    const ToyEngine::Output forced = engine.RunForced(params);
    CHECK(forced.tokens.size() > 0);
    const ToyText text;
    CHECK(text.TextOf(forced) == text.TextOf(plain));
    // The rows of this test are noise, so a model could choose other tokens that spell the same.
    CHECK(forced.num_rounds < plain.num_rounds);
    CHECK(forced.accepted > 0);
  }

  TEST_CASE("outputs of random rows match the pattern, with drafts and without") {
    const ToyText toy;
    ToyEngine engine;
    constexpr char kPattern[] = "(no|[1-9][0-9]{2,5}(-[a-f]+)?)";
    const std::regex whole(kPattern);
    const std::vector<int32_t> likely = toy.IdsOf("0123456789-abcdef");
    REQUIRE(likely.size() > 17);
    uint32_t accepted = 0;
    uint32_t by_eos = 0;
    uint32_t by_grammar = 0;
    for (uint64_t seed = 1; seed <= 60; ++seed) {
      specd_params params = Constrained(SPECD_GRAMMAR_REGEX, kPattern);
      params.seed = seed;
      params.verify = SPECD_VERIFY_EXACT_MATCH;
      const ToyEngine::Output plain = engine.Run(params, 0, likely);
      CAPTURE(seed);
      const std::string text = toy.TextOf(plain);
      CAPTURE(text);
      if (plain.finish_reason == SPECD_FINISH_STOP) {
        CHECK(std::regex_match(text, whole));
        // An end without a stop id is the grammar's: the text cannot go on.
        (plain.stop_token == kEos ? by_eos : by_grammar) += 1;
        if (plain.stop_token != kEos) {
          CHECK(plain.stop_token == -1);
          CHECK(text == "no");
        }
      } else {
        CHECK(plain.finish_reason == SPECD_FINISH_LENGTH);
      }
      // The same seed and rows give the same text with drafts (CONTRACT §5, exact_match).
      const ToyEngine::Output drafted = engine.Run(params, kMaxDraft, likely);
      CHECK(drafted.tokens == plain.tokens);
      CHECK(drafted.finish_reason == plain.finish_reason);
      CHECK(drafted.stop_token == plain.stop_token);
      accepted += drafted.accepted;
      params.verify = SPECD_VERIFY_TOKEN;
      const ToyEngine::Output other = engine.Run(params, kMaxDraft, likely);
      if (other.finish_reason == SPECD_FINISH_STOP) {
        CHECK(std::regex_match(toy.TextOf(other), whole));
      }
    }
    CHECK(accepted > 0);
    CHECK(by_eos > 0);
    CHECK(by_grammar > 0);
  }

  TEST_CASE("a choice ends its sequence by itself, and no id is the reason") {
    const ToyText toy;
    ToyEngine engine;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      specd_params params = Constrained(SPECD_GRAMMAR_CHOICE, R"(["yes", "no", "maybe"])");
      params.seed = seed;
      const ToyEngine::Output output = engine.Run(params, seed % 5, toy.IdsOf("yesnomab"));
      const std::string text = toy.TextOf(output);
      CHECK((text == "yes" || text == "no" || text == "maybe"));
      CHECK(output.finish_reason == SPECD_FINISH_STOP);
      CHECK(output.stop_token == -1);
    }
  }

  TEST_CASE("a constraint that cannot be compiled is refused with its field") {
    ToyEngine engine;
    specd_sequence sequence = 0;
    CHECK(engine.TryOpen(Constrained(SPECD_GRAMMAR_REGEX, "(a"), &sequence) ==
          SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("grammar"));
    CHECK(engine.TryOpen(Constrained(SPECD_GRAMMAR_NONE, "a"), &sequence) ==
          SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("grammar_kind"));
    CHECK(engine.TryOpen(Constrained(7, "a"), &sequence) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("grammar_kind"));
    specd_params params = Constrained(SPECD_GRAMMAR_REGEX, "a");
    params.grammar_backend = 3;
    CHECK(engine.TryOpen(params, &sequence) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("grammar_backend"));
    // The engine goes on.
    CHECK(engine.TryOpen(Constrained(SPECD_GRAMMAR_REGEX, "a"), &sequence) == SPECD_OK);
  }

  TEST_CASE("the warnings of an opening name what lenient dropped, until the next opening") {
    ToyEngine engine;
    CHECK(engine.Warnings().empty());
    specd_params lenient = Constrained(SPECD_GRAMMAR_JSON, R"({"properties": {
        "a\nb": {"type": "array", "uniqueItems": true},
        "c": {"type": "array", "uniqueItems": true}}})");
    lenient.grammar_backend = SPECD_BACKEND_SPECD;
    specd_sequence sequence = 0;
    CHECK(engine.TryOpen(lenient, &sequence) == SPECD_ERROR_UNSUPPORTED);
    CHECK(engine.Warnings().empty());
    lenient.grammar_lenient = 1;
    const specd_params plain = Constrained(SPECD_GRAMMAR_REGEX, "a");
    const specd_params wrong = Constrained(SPECD_GRAMMAR_REGEX, "(a");
    // The second opening finds the constraint compiled.
    for (int i = 0; i < 2; ++i) {
      REQUIRE(engine.TryOpen(lenient, &sequence) == SPECD_OK);
      const std::string warnings = engine.Warnings();
      CAPTURE(warnings);
      // The order of properties is the grammar's own.
      CHECK(warnings.find("/properties/a b: uniqueItems") != std::string::npos);
      CHECK(warnings.find("/properties/c: uniqueItems") != std::string::npos);
      CHECK(std::count(warnings.begin(), warnings.end(), '\n') == 1);
      REQUIRE(engine.TryOpen(i == 0 ? plain : wrong, &sequence) ==
              (i == 0 ? SPECD_OK : SPECD_ERROR_INVALID_ARGUMENT));
      CHECK(engine.Warnings().empty());
    }
    CHECK(std::string(specd_opening_warnings(nullptr)).empty());
  }

  // If other ids end a thought by force, the gate would never open and nothing would be
  // constrained.
  TEST_CASE("a thinking budget ends a thought before a constraint by the model's reasoning_end") {
    const ToyText toy;
    const int32_t letter = toy.IdsOf("x").front();
    const std::vector<int32_t> other = {letter, letter};
    const std::vector<int32_t> end = {letter, toy.IdsOf("<").front(), toy.IdsOf(">").front()};
    specd_options options = ToyOptions();
    options.reasoning_end = "<>";
    ToyEngine engine(options);
    specd_params params = Constrained(SPECD_GRAMMAR_REGEX, "a");
    params.thinking_budget = 2;
    params.thinking_start_id = toy.IdsOf("y").front();
    params.thinking_end_ids = {other.data(), other.size()};
    specd_sequence sequence = 0;
    CHECK(engine.TryOpen(params, &sequence) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("thinking_end_ids"));
    CHECK(LastErrorHas("reasoning_end = \"<>\""));
    params.thinking_end_ids = {end.data(), 2};
    CHECK(engine.TryOpen(params, &sequence) == SPECD_ERROR_INVALID_ARGUMENT);
    params.thinking_end_ids = {end.data(), end.size()};
    CHECK(engine.TryOpen(params, &sequence) == SPECD_OK);
    // Without a constraint the ids are free.
    params.thinking_end_ids = {other.data(), other.size()};
    params.grammar_kind = SPECD_GRAMMAR_NONE;
    params.grammar = nullptr;
    CHECK(engine.TryOpen(params, &sequence) == SPECD_OK);
  }

  TEST_CASE("without a tokenizer a constraint is refused with the remedy") {
    specd_options options = ToyOptions();
    options.tokenizer = nullptr;
    ToyEngine engine(options);
    specd_sequence sequence = 0;
    CHECK(engine.TryOpen(Constrained(SPECD_GRAMMAR_REGEX, "a"), &sequence) ==
          SPECD_ERROR_UNSUPPORTED);
    CHECK(LastErrorHas("tokenizer"));
  }

  TEST_CASE("the tokenizer and the EOS ids of an embedded engine are checked by name") {
    specd_engine* engine = nullptr;
    specd_options options = ToyOptions();
    options.tokenizer = "/nonexistent/tokenizer.json";
    CHECK(specd_open("embedded:cpu", &options, &engine) == SPECD_ERROR_NOT_FOUND);
    CHECK(LastErrorHas("/nonexistent/tokenizer.json"));
    options = ToyOptions();
    options.vocab_size = kVocab - 1;
    CHECK(specd_open("embedded:cpu", &options, &engine) == SPECD_ERROR_VOCABULARY);
    CHECK(LastErrorHas("2047"));
    const int32_t outside[] = {static_cast<int32_t>(kVocab)};
    options = ToyOptions();
    options.eos_token_ids = {outside, 1};
    CHECK(specd_open("embedded:cpu", &options, &engine) == SPECD_ERROR_VOCABULARY);
    CHECK(LastErrorHas("EOS id 2048"));
    const int32_t negative[] = {-1};
    options.eos_token_ids = {negative, 1};
    CHECK(specd_open("embedded:cpu", &options, &engine) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("eos_token_ids"));
    options.eos_token_ids = {nullptr, 1};
    CHECK(specd_open("embedded:cpu", &options, &engine) == SPECD_ERROR_INVALID_ARGUMENT);
    options.eos_token_ids = {outside, 65};
    CHECK(specd_open("embedded:cpu", &options, &engine) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("eos_token_ids"));
    // A daemon has both itself.
    options = ToyOptions();
    options.threads = 0;
    CHECK(specd_open("unix:/nonexistent", &options, &engine) == SPECD_ERROR_UNSUPPORTED);
    CHECK(LastErrorHas("--tokenizer="));
    options.tokenizer = nullptr;
    CHECK(specd_open("unix:/nonexistent", &options, &engine) == SPECD_ERROR_UNSUPPORTED);
    CHECK(LastErrorHas("--eos_token_ids"));
  }

  TEST_CASE("EOS ids of an embedded engine end sequences; ignore_eos needs one to ignore") {
    const std::vector<int32_t> none = {0};
    specd_options options = ToyOptions();
    options.tokenizer = nullptr;
    std::vector<int32_t> every(64);
    for (size_t i = 0; i < every.size(); ++i) every[i] = static_cast<int32_t>(i);
    options.eos_token_ids = {every.data(), every.size()};
    ToyEngine engine(options);
    specd_params params = Constrained(SPECD_GRAMMAR_NONE, nullptr);
    params.allowed_token_ids = {every.data(), every.size()};
    const ToyEngine::Output ended = engine.Run(params, 0, none);
    CHECK(ended.tokens.size() == 1);
    CHECK(ended.finish_reason == SPECD_FINISH_STOP);
    CHECK(ended.stop_token == ended.tokens[0]);
    params.ignore_eos = 1;
    CHECK(engine.Run(params, 0, none).finish_reason == SPECD_FINISH_LENGTH);

    options.eos_token_ids = {};
    ToyEngine unknowing(options);
    specd_sequence sequence = 0;
    CHECK(unknowing.TryOpen(params, &sequence) == SPECD_ERROR_UNSUPPORTED);
    CHECK(LastErrorHas("ignore_eos"));
  }
}

}  // namespace
}  // namespace specd
