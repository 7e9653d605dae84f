#include "speculative/sequence/row_rules.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tests/speculative/naive_rules.h"

namespace specd {
namespace {

constexpr int32_t kVocab = 9;
constexpr TokenId kStart = 5;
constexpr TokenId kNewline = 4;

const TokenEdit* FindEdit(const TokenEdit* edits, int32_t count, TokenId id) {
  const TokenEdit* found = nullptr;
  for (int32_t i = 0; i < count; ++i) {
    if (edits[i].id == id) found = &edits[i];
  }
  return found;
}

Effect Actual(const SequenceEdits& sequence, const PlaceEdits& place, TokenId id) {
  const TokenEdit* edit = FindEdit(place.overrides, place.num_overrides, id);
  if (edit == nullptr) edit = FindEdit(sequence.edits, sequence.num_edits, id);
  if (edit == nullptr) return {};
  return {(edit->flags & kEditSeen) != 0,
          (edit->flags & kEditDisallowed) != 0,
          (edit->flags & kEditEnd) != 0,
          (edit->flags & kEditBanned) != 0,
          edit->bias,
          edit->count};
}

bool IsSorted(const TokenEdit* edits, int32_t count) {
  for (int32_t i = 1; i < count; ++i) {
    if (edits[i - 1].id >= edits[i].id) return false;
  }
  return true;
}

struct Random {
  std::mt19937 engine;
  size_t Below(size_t bound) { return engine() % bound; }
  bool Coin() { return Below(2) == 0; }
  TokenId Id() { return static_cast<TokenId>(Below(kVocab)); }
  Ids Some(size_t min, size_t max) {
    Ids ids(min + Below(max - min + 1));
    // Few different ids, so that words, n-grams and markers really occur.
    for (TokenId& id : ids) id = Below(4) == 0 ? Id() : static_cast<TokenId>(3 + Below(3));
    return ids;
  }
};

SequenceParams AnyParams(Random& random) {
  SequenceParams params;
  params.max_tokens = 60;
  if (random.Coin()) params.repetition_penalty = 1.5;
  if (random.Coin()) params.frequency_penalty = 0.5;
  if (random.Coin()) params.presence_penalty = -0.5;
  if (random.Coin()) params.logit_bias = {{6, 1.5f}, {2, -2.25f}};
  if (random.Coin()) params.disallowed_token_ids = {7};
  if (random.Coin()) params.allowed_token_ids = {0, 2, 3, 4, 5, 6, 7, 8};
  if (random.Coin()) params.min_tokens = static_cast<int64_t>(random.Below(12));
  if (random.Coin()) params.stop_token_ids = {0, 6};
  if (random.Coin()) params.bad_words = {{3, 4}, {8}, {4, 3, 5}, {3, 3, 3, 3}, {5, 4}};
  if (random.Coin()) {
    params.no_repeat_ngram_size = 1 + static_cast<int64_t>(random.Below(4));
    if (random.Coin()) params.no_repeat_ngram_window = 1 + static_cast<int64_t>(random.Below(10));
    if (random.Coin()) params.no_repeat_ngram_whitelist = {4, 3};
  }
  if (random.Coin()) {
    params.thinking.budget = static_cast<int64_t>(random.Below(7));
    params.thinking.start_id = kStart;
    if (random.Coin()) params.thinking.newline_id = kNewline;
    const Ids ends[] = {{3}, {3, 4}, {3, 3, 4}, {4, 3, 4, 4}};
    params.thinking.end_ids = ends[random.Below(4)];
  }
  if (random.Coin()) {
    params.processors = {{"repeat_run", {{"max_run", 1 + static_cast<double>(random.Below(3))}}}};
  }
  return params;
}

const BackendLimits kLimits{kVocab, 4, 6};

void CheckPlace(const NaiveRules& naive, const RowRules& rules, const PlaceEdits& place) {
  CHECK(place.forced == naive.Forced());
  CHECK(place.mask_row == -1);
  CHECK(IsSorted(place.overrides, place.num_overrides));
  // Where a token is forced too: a constraint may cancel it, and bans and counts must be left then.
  const SequenceEdits sequence = rules.sequence_edits();
  for (TokenId id = 0; id < kVocab; ++id) {
    CAPTURE(id);
    CHECK(Actual(sequence, place, id) == naive.Of(id));
  }
}

Draft ChainOf(const Ids& ids) {
  return {.num_nodes = static_cast<int32_t>(ids.size()), .tokens = ids.data()};
}

// Every place of one draft, built as a chain and one at a time.
void CheckDraft(const NaiveRules& kept, RowRules* rules, const Ids& drafts) {
  const SequenceEdits sequence = rules->sequence_edits();
  REQUIRE(IsSorted(sequence.edits, sequence.num_edits));
  const auto num_kept = static_cast<int64_t>(kept.outputs.size());
  std::vector<PlaceEdits> places(drafts.size() + 1);
  const Draft chain = ChainOf(drafts);
  rules->BeginRound();
  if (rules->NeedsPlaces(num_kept)) rules->Build(chain, 0, num_kept, places.data());
  NaiveRules naive = kept;
  for (size_t i = 0; i <= drafts.size(); ++i) {
    CAPTURE(i);
    CheckPlace(naive, *rules, places[i]);
    const auto length = num_kept + static_cast<int64_t>(i);
    CHECK(places[i].below_min_tokens == (length < kept.params.min_tokens));
    if (i < drafts.size() && drafts[i] >= 0 && drafts[i] < kVocab) {
      naive.outputs.push_back(drafts[i]);
    }
  }
  if (!rules->NeedsPlaces(num_kept)) return;
  rules->BeginRound();
  PlaceEdits last;
  rules->Build(chain, chain.num_nodes, num_kept, &last);
  CheckPlace(naive, *rules, last);
}

TEST_SUITE("unit") {
  TEST_CASE("every place of every draft is what a count over all tokens says") {
    Random random{std::mt19937(20240607)};
    for (int trial = 0; trial < 400; ++trial) {
      CAPTURE(trial);
      NaiveRules naive{AnyParams(random), {1, 6}, random.Some(0, 12), random.Some(0, 5)};
      auto created =
          RowRules::Create(naive.params, naive.eos, {naive.prompt, naive.outputs}, kLimits);
      REQUIRE(created.ok());
      RowRules rules = *std::move(created);
      while (naive.outputs.size() < 50) {
        Ids drafts = random.Some(0, 6);
        // Ids outside the vocabulary are no ids.
        if (!drafts.empty() && random.Below(4) == 0) {
          drafts[random.Below(drafts.size())] = random.Coin() ? kVocab + 3 : -7;
        }
        CheckDraft(naive, &rules, drafts);

        const Ids kept = random.Some(1, 7);
        const NaiveRules before = naive;
        naive.outputs.insert(naive.outputs.end(), kept.begin(), kept.end());
        const size_t kind = random.Below(4);
        if (kind == 0) {  // a fork goes on, and what it came from stays as it was
          RowRules fork = rules;
          fork.Commit(kept);
          CheckDraft(before, &rules, drafts);
          rules = std::move(fork);
        } else if (kind == 1) {  // moved to another engine
          rules =
              *RowRules::Create(naive.params, naive.eos, {naive.prompt, naive.outputs}, kLimits);
        } else {
          rules.Commit(kept);
        }
      }
    }
  }

  TEST_CASE("a place of a tree has the edits that the chain of its path has") {
    // Bug this would catch: a node that sees the tokens of its siblings.
    SequenceParams params;
    params.frequency_penalty = 1;
    params.bad_words = {{1, 2}, {0, 1, 3}};
    params.no_repeat_ngram_size = 2;
    params.min_tokens = 3;
    params.max_tokens = 50;
    const Ids prompt = {0, 1};
    auto rules = RowRules::Create(params, {}, {prompt, {}}, kLimits);
    REQUIRE(rules.ok());
    RowRules of_chains = *rules;
    std::mt19937 random(5);
    for (int repeat = 0; repeat < 100; ++repeat) {
      const int32_t num_nodes = kLimits.max_draft;
      Ids tokens;
      std::vector<int32_t> parents;
      for (int32_t node = 0; node < num_nodes; ++node) {
        tokens.push_back(static_cast<TokenId>(random() % 4));
        parents.push_back(static_cast<int32_t>(random() % static_cast<unsigned>(node + 1)) - 1);
      }
      const Draft tree = {
          .num_nodes = num_nodes, .tokens = tokens.data(), .parents = parents.data()};
      std::vector<PlaceEdits> places(static_cast<size_t>(num_nodes) + 1);
      rules->BeginRound();
      rules->Build(tree, 0, 1, places.data());
      for (int32_t place = 0; place <= num_nodes; ++place) {
        Ids path;
        for (int32_t node = place - 1; node >= 0; node = parents[static_cast<size_t>(node)]) {
          path.insert(path.begin(), tokens[static_cast<size_t>(node)]);
        }
        PlaceEdits wanted;
        of_chains.BeginRound();
        of_chains.Build(ChainOf(path), static_cast<int32_t>(path.size()), 1, &wanted);
        const PlaceEdits& found = places[static_cast<size_t>(place)];
        CHECK(found.below_min_tokens == wanted.below_min_tokens);
        REQUIRE(found.num_overrides == wanted.num_overrides);
        for (int32_t j = 0; j < found.num_overrides; ++j) {
          CHECK(found.overrides[j].id == wanted.overrides[j].id);
          CHECK(found.overrides[j].count == wanted.overrides[j].count);
          CHECK(found.overrides[j].flags == wanted.overrides[j].flags);
        }
      }
    }
  }

  TEST_CASE("a fork knows where its prompt ends") {
    SequenceParams params;
    params.bad_words = {{3, 4}};
    const Ids prompt = {3};
    const auto rules = RowRules::Create(params, {}, {prompt, {}}, kLimits);
    RowRules fork = *rules;
    PlaceEdits places[2];
    const Ids draft = {3};
    fork.Build(ChainOf(draft), 0, 0, places);
    CHECK(places[0].num_overrides == 0);  // what the prompt begins is no bad word
    CHECK(places[1].num_overrides == 1);
  }

  TEST_CASE("allowed_token_ids become a mask row; the words beyond are 0") {
    SequenceParams params;
    params.allowed_token_ids = {0, 31, 32, 69};
    const auto rules = RowRules::Create(params, {}, {}, {70, 1, 1});
    const uint32_t* words = rules->sequence_edits().allowed;
    REQUIRE(words != nullptr);
    CHECK(words[0] == 0x80000001u);
    CHECK(words[1] == 1u);
    CHECK(words[2] == 1u << 5);
    CHECK(RowRules::Create({}, {}, {}, {70, 1, 1})->sequence_edits().allowed == nullptr);
  }

  TEST_CASE("a sequence without such parameters has no state") {
    const Ids prompt = {1, 2, 3};
    const Ids eos = {1};
    const auto rules = RowRules::Create({}, eos, {prompt, {}}, kLimits);
    CHECK(rules->empty());
    CHECK_FALSE(rules->NeedsPlaces(0));
    CHECK(rules->sequence_edits().num_edits == 0);
  }

  TEST_CASE("penalty state grows with distinct ids and not with the vocabulary") {
    SequenceParams params;
    params.frequency_penalty = 1;
    params.max_tokens = 1'000'000;
    const BackendLimits limits{kVocabSizeMax, 1, 1};
    auto rules = RowRules::Create(params, {}, {}, limits);
    REQUIRE(rules.ok());
    for (int i = 0; i < 5000; ++i) rules->Commit(Ids{i % 7 * 100'000});
    CHECK(rules->sequence_edits().num_edits == 7);
    CHECK(rules->sequence_edits().edits[6].count == 714);  // 5000 = 714 * 7 + 2
    CHECK(rules->sequence_edits().edits[1].count == 715);
  }

  TEST_CASE("the longest history is refused by name, with what is allowed") {
    SequenceParams params;
    params.max_tokens = int64_t{1} << 30;
    params.bad_words = {{1, 2}};
    const auto rules = RowRules::Create(params, {}, {}, kLimits);
    REQUIRE(rules.status().code() == absl::StatusCode::kInvalidArgument);
    const std::string message(rules.status().message());
    CHECK(message.find("max_tokens = 1073741824") != std::string::npos);
    CHECK(message.find("16777216") != std::string::npos);
    // Penalties need no history: the same length is fine without words.
    params.bad_words.clear();
    params.presence_penalty = 1;
    CHECK(RowRules::Create(params, {}, {}, kLimits).ok());
  }

  TEST_CASE("a thought that its own end would open again is refused") {
    SequenceParams params;
    params.thinking = {2, 5, {3, 5}, kNoToken};
    const auto rules = RowRules::Create(params, {}, {}, kLimits);
    CHECK(std::string(rules.status().message()).find("thinking_end_ids: 5") == 0);
    // A budget of 0 is a budget; one below 0 is none.
    params.thinking.budget = 0;
    CHECK(!RowRules::Create(params, {}, {}, kLimits).ok());
    params.thinking.budget = -1;
    CHECK(RowRules::Create(params, {}, {}, kLimits).ok());
  }

  TEST_CASE("n-gram bans too many for memory are refused, never dropped") {
    SequenceParams params;
    params.max_tokens = 10'000'000;
    params.no_repeat_ngram_size = 2;
    const BackendLimits limits{kVocabSizeMax, 1, 128};
    const auto rules = RowRules::Create(params, {}, {}, limits);
    REQUIRE(rules.status().code() == absl::StatusCode::kResourceExhausted);
    CHECK(std::string(rules.status().message()).find("no_repeat_ngram_window") !=
          std::string::npos);
    params.no_repeat_ngram_window = 1000;
    CHECK(RowRules::Create(params, {}, {}, limits).ok());
  }

  TEST_CASE("a place with more repetitions than room for them loses none of its bans") {
    // Bug this would catch: the pool filled with equal ids, and later ones dropped.
    SequenceParams params;
    params.no_repeat_ngram_size = 1;
    params.max_tokens = 300;
    params.frequency_penalty = 1;
    const BackendLimits limits{20, 1, 3};
    auto rules = RowRules::Create(params, {}, {}, limits);
    REQUIRE(rules.ok());
    Ids kept;
    for (int i = 0; i < 200; ++i) kept.push_back(i < 19 ? i : 18);
    rules->Commit(kept);
    PlaceEdits places[4];
    rules->BeginRound();
    const Ids draft = {3, 19, 3};
    rules->Build(ChainOf(draft), 0, 200, places);
    CHECK(places[0].num_overrides == 19);
    REQUIRE(places[3].num_overrides == 20);
    for (TokenId id = 0; id < 20; ++id) {
      CHECK((places[3].overrides[id].flags & kEditBanned) != 0);
    }
    CHECK(places[3].overrides[3].count == 3);
    CHECK(places[3].overrides[18].count == 182);
  }
}

}  // namespace
}  // namespace specd
