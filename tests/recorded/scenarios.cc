#include "tests/recorded/scenarios.h"

#include <fmt/format.h>

#include <span>

#include "tests/recorded/scenario_lists.h"

namespace specd::recorded {
namespace {

using Texts = std::span<const char* const>;

bool SetsTemperature(const std::string& params) {
  return params.starts_with("temperature=") || params.find(";temperature=") != std::string::npos;
}

class Builder {
 public:
  explicit Builder(EngineSpec engine) { scenario_.engine = std::move(engine); }

  // Chooses the values that are not given in turn: seed, shape, and logprobs for every other life.
  void Add(const std::string& params, const std::string& steps) {
    const size_t index = scenario_.plans.size();
    LifePlan plan;
    plan.name = fmt::format("{}.{}", scenario_.engine.name, index);
    plan.steps = steps;
    plan.row_seed = 1000 * num_builders_ + index;
    plan.shape = shapes_[index % shapes_.size()];
    plan.params = params;
    const auto add = [&](const std::string& param, std::string_view unless) {
      if (params.find(unless) != std::string::npos) return;
      plan.params += (plan.params.empty() ? "" : ";") + param;
    };
    add(fmt::format("seed={}", plan.row_seed * 0x9e3779b97f4a7c15), "seed=");
    add("max_tokens=60", "max_tokens=");
    if (with_logprobs_ && index % 2 != 0) {
      add(fmt::format("logprobs={};logprobs_mode={}", index / 2 % 4, kModes[index / 3 % 4]),
          "logprobs=");
    }
    scenario_.plans.push_back(std::move(plan));
  }

  // Each of params with each of methods, and steps in turn.
  void Cross(Texts methods, Texts params, Texts steps) {
    for (const std::string param : params) {
      for (const std::string method : methods) {
        const bool is_greedy = method.find("greedy") != std::string::npos;
        if (is_greedy && SetsTemperature(param)) continue;
        Add(param.empty() ? method : method + ";" + param, steps[num_crossed_++ % steps.size()]);
      }
    }
  }

  void UseShapes(Texts shapes) { shapes_ = shapes; }
  void LeaveOutLogprobs() { with_logprobs_ = false; }
  Scenario Take() && { return std::move(scenario_); }

 private:
  static inline uint64_t num_builders_ = 0;
  Scenario scenario_;
  Texts shapes_ = kShapes;
  bool with_logprobs_ = true;
  size_t num_crossed_ = num_builders_++;
};

EngineSpec Engine(const std::string& name, uint32_t vocab_size, uint32_t max_draft = 3) {
  EngineSpec engine;
  engine.name = name;
  engine.vocab_size = vocab_size;
  engine.max_draft = max_draft;
  return engine;
}

// ---- small vocabularies: every parameter

Scenario SmallFloat() {
  EngineSpec engine = Engine("v33_fp32", 33);
  engine.row_padding = 5;
  Builder builder(engine);
  builder.Cross(Texts(kMethods).first(3), kFilters, kSteps);
  builder.Cross(Texts(kMethods).first(3), kEdits, kSteps);
  builder.Add("verify=block;n=3", "0>sss&1>sss&2>aab|0>a&1>rr|2>S:sss&1>S:sss");
  builder.Add("verify=exact_match;n=2;frequency_penalty=0.7", "0>aab&1>aab|1>a|0>aa&1>bb");
  builder.Add("top_k=1", "aab|sss||bqs");
  builder.Add("top_k=-1;logprobs=2", "aab|sss||bqs");
  return std::move(builder).Take();
}

Scenario SmallHalf(const std::string& dtype, uint32_t vocab_size) {
  EngineSpec engine = Engine(fmt::format("v{}_{}", vocab_size, dtype), vocab_size);
  engine.target.dtype = dtype;
  engine.draft.dtype = dtype == "fp16" ? "bf16" : dtype;
  Builder builder(engine);
  const char* const kShapesOfBoth[] = {"spiky", "peak", "ties", "holes", "wide", "bell", "flat"};
  if (dtype == "fp16") builder.UseShapes(kShapesOfBoth);
  const Texts methods = Texts(kMethods).subspan(dtype == "fp16" ? 4 : 3, 1);
  builder.Cross(methods, kFilters, kSteps);
  builder.Cross(methods, kEdits, kSteps);
  return std::move(builder).Take();
}

Scenario Scaled(const std::string& dtype) {
  EngineSpec engine = Engine("v100_scaled_" + (dtype.empty() ? "fp32" : dtype), 100);
  engine.target = {.dtype = dtype, .scale = "0.5", .cap = "6"};
  engine.draft = {.dtype = dtype, .scale = "0.75", .cap = dtype.empty() ? "5" : ""};
  Builder builder(engine);
  builder.Cross(kMethods, Texts(kFilters).subspan(3, 6), kSteps);
  return std::move(builder).Take();
}

// One id, two ids; no draft at all; the longest draft.
Scenario Tiny(uint32_t vocab_size) {
  Builder builder(Engine(fmt::format("v{}", vocab_size), vocab_size));
  const char* const kParams[] = {"", "top_p=0.5", "top_k=1"};
  builder.Cross(Texts(kMethods).first(1), kParams, kSteps);
  builder.Cross(Texts(kMethods).subspan(1, 2), Texts(kParams).first(2), kSteps);
  builder.Cross(Texts(kMethods).last(1), Texts(kParams).first(1), kSteps);
  return std::move(builder).Take();
}

Scenario NoDraft() {
  Builder builder(Engine("v40_no_draft", 40, /*max_draft=*/0));
  const char* const kPlain[] = {"||/h||", "||@0=inf|@0=nan|"};
  builder.Cross(kMethods, Texts(kEdits).first(4), kPlain);
  return std::move(builder).Take();
}

Scenario LongDraft() {
  Builder builder(Engine("v64_long_draft", 64, /*max_draft=*/64));
  const char* const kLong[] = {"peak"};
  builder.UseShapes(kLong);
  const std::string best(64, 'a');
  const std::string mixed = fmt::format("{}|{}|{}", best, std::string(20, 'q'), best);
  const char* const kLongSteps[] = {mixed.c_str(), "S:ssssssssssss|qqqqqqqqqqqqqqqqqqqqs|aaaaaaar"};
  const char* const kParams[] = {"max_tokens=200;temperature=0.4;draft_temperature=0.4",
                                 "max_tokens=70;frequency_penalty=0.2;top_k=5;draft_edits=1"};
  builder.Cross(Texts(kMethods).first(4), kParams, kLongSteps);
  return std::move(builder).Take();
}

// ---- large vocabularies: tiles, and filters over many ids

Scenario Large(uint32_t vocab_size, const std::string& dtype, Texts methods) {
  EngineSpec engine =
      Engine(fmt::format("v{}_{}", vocab_size, dtype.empty() ? "fp32" : dtype), vocab_size);
  engine.target.dtype = dtype;
  engine.draft.dtype = dtype;
  engine.row_padding = vocab_size % 3;
  Builder builder(engine);
  const char* const kShort[] = {"aab|S:sss|q", "sss/hh..||bqs", "aa|sqs/.h..|ra"};
  builder.Cross(methods, kFilters, kShort);
  const char* const kSome[] = {
      "repetition_penalty=1.5;frequency_penalty=0.5;prompt_ids=1 2000 7",
      "logit_bias_ids=0 1999;logit_bias=5 5;bad_word_ids=3;bad_word_lengths=1;draft_edits=1",
      "logprobs=20;logprobs_mode=processed_logprobs;top_k=12;logprob_token_ids=0 2000"};
  builder.Cross(methods, kSome, kShort);
  return std::move(builder).Take();
}

// ---- rows of probabilities

Scenario Probable(const std::string& kind, uint32_t renormalise) {
  EngineSpec engine =
      Engine(fmt::format("v257_{}{}", kind, renormalise != 0 ? "_renormalised" : ""), 257);
  engine.target = {.kind = kind, .renormalise = renormalise};
  engine.draft = {.kind = kind, .renormalise = renormalise};
  Builder builder(engine);
  const char* const kNormal[] = {"spiky", "peak", "ties", "holes", "fine", "wide", "flat"};
  const char* const kLoose[] = {"loose", "fine"};
  builder.UseShapes(renormalise != 0 ? Texts(kLoose) : Texts(kNormal));
  const Texts sampled = Texts(kMethods).first(4);
  if (kind == "final") {
    const char* const kNone[] = {"", "logprobs=3"};
    builder.Cross(sampled, kNone, kSteps);
  } else {
    builder.Cross(renormalise != 0 ? Texts(kMethods).last(3) : Texts(kMethods).first(3),
                  Texts(kFilters).subspan(renormalise != 0 ? 6 : 0), kSteps);
    builder.Cross(sampled.first(renormalise != 0 ? 1 : 3), Texts(kEdits).subspan(3, 3), kSteps);
  }
  builder.Add("verify=block;draft_edits=1", "a");
  for (const char* const steps : kBadProbabilities) builder.Add("verify=block", steps);
  for (const char* const steps : kBadProbabilities) builder.Add("verify=token", steps);
  for (const char* const method : sampled) builder.Add(method, "sss/h..h|aab/hhhh|a");
  return std::move(builder).Take();
}

// ---- bad rows, masks, calls, refusals

Scenario BadRows(uint32_t vocab_size, const std::string& dtype) {
  EngineSpec engine = Engine(
      fmt::format("v{}_bad_rows_{}", vocab_size, dtype.empty() ? "fp32" : dtype), vocab_size);
  engine.target.dtype = dtype;
  engine.draft.dtype = dtype;
  Builder builder(engine);
  for (const char* const steps : kBadRows) {
    builder.Add("verify=token", steps);
    builder.Add("verify=block;top_p=0.9", steps);
    if (!dtype.empty()) continue;
    builder.Add("verify=exact_match;draft_edits=1", steps);
    builder.Add("verify=greedy;temperature=0", steps);
  }
  return std::move(builder).Take();
}

Scenario Calls(const std::string& kind) {
  EngineSpec engine = Engine("v50_calls" + (kind.empty() ? "" : "_" + kind), 50);
  engine.target.kind = kind;
  engine.draft.kind = kind;
  Builder builder(engine);
  if (!kind.empty()) builder.UseShapes(Texts(kShapes).first(3));
  for (const char* const steps : kCalls) {
    builder.Add("verify=block;draft_temperature=0.8", steps);
    builder.Add(
        "verify=token;draft_top_k=7;top_p=0.8;repetition_penalty=1.2;draft_edits=1;"
        "no_repeat_ngram_size=2",
        steps);
    if (!kind.empty()) continue;
    builder.Add(
        "verify=exact_match;thinking_budget=4;thinking_start_id=1;thinking_end_ids=2 3;"
        "prompt_ids=1",
        steps);
    builder.Add("verify=auto;temperature=0;frequency_penalty=0.5", steps);
  }
  return std::move(builder).Take();
}

Scenario BySlot() {
  EngineSpec engine = Engine("v30_by_slot", 30);
  engine.bind_draft_tokens = 1;
  Builder builder(engine);
  const char* const kSlotSteps[] = {"L:aab|L:sss|L:|L:bqs|aab|L:aaa", "L:aaa|a|L:OqR|S:sss|L:onr"};
  builder.Cross(kMethods, Texts(kEdits).subspan(4, 8), kSlotSteps);
  return std::move(builder).Take();
}

Scenario Unfiltered() {
  Builder builder(Engine("v45_unfiltered", 45));
  builder.Cross(kMethods, kUnfiltered, kSteps);
  builder.Add("temperature=0;top_k=2;logprobs=3;logprobs_mode=unfiltered_logprobs",
              "aab|rr/h..|a@0=inf|a@0=nan");
  return std::move(builder).Take();
}

Scenario Invalid() {
  Builder builder(Engine("v8_invalid", 8));
  for (const char* const steps : kInvalid) {
    builder.Add("verify=block", steps);
    builder.Add("verify=greedy;temperature=0", steps);
    builder.Add("verify=exact_match;no_repeat_ngram_size=2", steps);
  }
  builder.Add("temperature=0;logprobs=1", "A:aa|aa");
  builder.Add("temperature=0;presence_penalty=1", "A:aa|aa");
  builder.LeaveOutLogprobs();
  builder.Add("temperature=0", "A:aab|A:b|A:|A:aaa|A:oa-|A:rrr");
  builder.Add("temperature=0;stop_token_ids=1 2 3;min_tokens=0", "A:aab|A:b|A:|A:aaa");
  return std::move(builder).Take();
}

Scenario Refused() {
  EngineSpec engine = Engine("v8_refused", 8, /*max_draft=*/2);
  engine.only_alone = 1;
  Builder builder(engine);
  builder.LeaveOutLogprobs();
  for (const char* const steps : {"aaa|a", "L:aa|a", "D:aaa|a", "qqqq|a"}) {
    builder.Add("verify=block", steps);
  }
  for (const char* const params : kRefusedParams) builder.Add(params, "a");
  return std::move(builder).Take();
}

}  // namespace

std::vector<Scenario> Scenarios() {
  std::vector<Scenario> scenarios;
  scenarios.push_back(SmallFloat());
  scenarios.push_back(SmallHalf("bf16", 29));
  scenarios.push_back(SmallHalf("fp16", 40));
  scenarios.push_back(Scaled(""));
  scenarios.push_back(Scaled("bf16"));
  scenarios.push_back(Tiny(1));
  scenarios.push_back(Tiny(2));
  scenarios.push_back(NoDraft());
  scenarios.push_back(LongDraft());
  scenarios.push_back(Large(2047, "bf16", Texts(kMethods).first(2)));
  scenarios.push_back(Large(2048, "", Texts(kMethods).subspan(1, 2)));
  scenarios.push_back(Large(2049, "fp16", Texts(kMethods).subspan(2, 2)));
  scenarios.push_back(Large(4099, "", Texts(kMethods).first(1)));
  scenarios.push_back(Large(5000, "", Texts(kMethods).subspan(2, 3)));
  scenarios.push_back(Probable("probabilities", 0));
  scenarios.push_back(Probable("probabilities", 1));
  scenarios.push_back(Probable("final", 0));
  scenarios.push_back(BadRows(33, ""));
  scenarios.push_back(BadRows(2500, "bf16"));
  scenarios.push_back(Calls(""));
  scenarios.push_back(Calls("probabilities"));
  scenarios.push_back(BySlot());
  scenarios.push_back(Invalid());
  scenarios.push_back(Refused());
  scenarios.push_back(Unfiltered());
  return scenarios;
}

}  // namespace specd::recorded
