// The masks of specd's own engine against those of the xgrammar library, on random walks that both
// allow; oracle.xgrammar (tests/oracle) runs it.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <map>
#include <memory>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "detokenizer/vocabulary.h"
#include "speculative/grammar/specd_backend.h"
#include "speculative/grammar/xgrammar_backend.h"
#include "tests/speculative/grammar/xgrammar_peer_cases.h"

namespace specd::grammar {
namespace {

constexpr uint32_t kSeed = 20261124;
constexpr int kWalks = 20;
constexpr int kSteps = 40;
constexpr std::string_view kSideNames[] = {"specd", "xgrammar", "specd and xgrammar's matcher"};
constexpr size_t kShownMax = 12;  // unexplained tokens of a case

// Pieces of JSON and of words, with quotes, blanks and halves of characters.
constexpr std::string_view kPieces[] = {
    "true", "false",  "null",     "tru",      "ull",  "10",  "12",   "123",   "000",    "1.5",
    "-1",   "e+",     ".0",       "foo",      "bar",  "baz", " foo", "ab",    "abc",    "ba",
    "bb",   "abca",   "yes",      "no",       "name", "age", "id",   "http",  "https",  "://",
    ".com", "-01",    "-12",      "192",      "é",    "漢",  "α",    "ωé",    "\\n",    "\\\"",
    "\\u",  "\\u00",  "\\\\",     "{\"",      "\"}",  "\":", "\": ", "\",\"", "\", \"", "[]",
    "[[",   "]]",     "{}",       "},{",      "],[",  ",\"", ", ",   ": ",    ":[",     "{\"a",
    "a\":", "\"a\":", "\n  ",     "  ",       "1,",   "2]",  "<f",   "<f=",   "</f>",   "=a>",
    ">{",   "}<",     "\xE6\xBC", "\xBC\xA2", "\xCE"};

// Every byte, the pieces, a special id with a text, a hole, and EOS.
struct PeerVocabulary {
  PeerVocabulary() {
    Vocabulary::Builder builder;
    TokenId id = 0;
    for (; id < 256; ++id) {
      const char byte = static_cast<char>(id);
      builder.Set(id, std::string_view(&byte, 1), {});
    }
    for (const std::string_view piece : kPieces) builder.Set(id++, piece, {});
    builder.Set(id++, "a", {.added = true, .special = true});
    eos = ++id;
    builder.Set(eos, "</s>", {.added = true, .special = true});
    size = eos + 20;  // more columns than ids
    vocabulary = std::move(builder).Build();
  }

  std::string TextOf(TokenId id) const {
    return id == eos ? "<eos>" : std::string(vocabulary.Bytes(id));
  }

  Vocabulary vocabulary;
  TokenId eos = 0;
  int32_t size = 0;
};

class PeerWalks {
 public:
  PeerWalks() : random_(kSeed) {
    own_ = *SpecdBackend::Create({.vocabulary = &tokens_.vocabulary, .vocab_size = tokens_.size});
    peer_ = LoadXgrammar({.vocabulary = &tokens_.vocabulary, .vocab_size = tokens_.size}).value();
    for (const PeerDifference& difference : kPeerDifferences) {
      differences_.push_back({&difference, std::regex(std::string(difference.cases)),
                              std::regex(std::string(difference.text)), 0});
    }
  }

  void Compare(const PeerCase& peer_case) {
    const GrammarRequest request = {.kind = peer_case.kind,
                                    .text = std::string(peer_case.text),
                                    .whitespace = peer_case.whitespace};
    const auto own = own_->Compile(request);
    const auto peer = peer_->Compile(request);
    REQUIRE_MESSAGE(own.ok(), own.status().ToString());
    REQUIRE_MESSAGE(peer.ok(), peer.status().ToString());
    for (int walk = 0; walk < kWalks; ++walk) {
      Walk(peer_case, {(*own)->NewMatcher({.stop_ids = {tokens_.eos}}),
                       (*peer)->NewMatcher({.stop_ids = {tokens_.eos}})});
    }
  }

  void CheckEveryDifferenceIsUsed() const {
    for (const Difference& difference : differences_) {
      CAPTURE(difference.entry->text);
      CAPTURE(difference.entry->reason);
      CHECK(difference.num_tokens > 0);
    }
  }

  int64_t num_masks() const { return num_masks_; }

 private:
  struct Matchers {
    std::unique_ptr<GrammarMatcher> own;
    std::unique_ptr<GrammarMatcher> peer;
  };
  struct Difference {
    const PeerDifference* entry = nullptr;
    std::regex cases;
    std::regex text;
    int64_t num_tokens = 0;
  };

  void Walk(const PeerCase& peer_case, const Matchers& matchers) {
    constexpr std::array<uint32_t, 3> kClosingPercents = {0, 20, 60};
    const uint32_t closing_percent = kClosingPercents[random_() % kClosingPercents.size()];
    std::string text;
    for (int step = 0; step < kSteps; ++step) {
      const MaskRow own = matchers.own->Mask();
      const MaskRow peer = matchers.peer->Mask();
      REQUIRE(own.words().size() == peer.words().size());
      ++num_masks_;
      std::vector<TokenId> both;
      for (TokenId id = 0; id < static_cast<TokenId>(32 * own.words().size()); ++id) {
        if (own.Allows(id) && peer.Allows(id)) both.push_back(id);
        if (own.Allows(id) == peer.Allows(id)) continue;
        PeerSide side = own.Allows(id) ? PeerSide::kSpecd : PeerSide::kXgrammar;
        if (own.Allows(id) && matchers.peer->Fork()->Accept(id)) side = PeerSide::kUnmasked;
        Explain(peer_case, side, text + tokens_.TextOf(id));
      }
      if (both.empty()) return;
      const TokenId id = Choose(both, closing_percent);
      REQUIRE(matchers.own->Accept(id));
      REQUIRE(matchers.peer->Accept(id));
      if (id == tokens_.eos) return;
      text += tokens_.TextOf(id);
    }
  }

  // Walks of equally likely tokens seldom leave a string.
  TokenId Choose(const std::vector<TokenId>& ids, uint32_t closing_percent) {
    std::vector<TokenId> closing;
    for (const TokenId id : ids) {
      if (tokens_.TextOf(id).find_first_of("\"]}<") == 0) closing.push_back(id);
    }
    const bool is_closing = !closing.empty() && random_() % 100 < closing_percent;
    const std::vector<TokenId>& from = is_closing ? closing : ids;
    return from[random_() % from.size()];
  }

  void Explain(const PeerCase& peer_case, PeerSide side, const std::string& text) {
    for (Difference& difference : differences_) {
      if (difference.entry->only != side ||
          !std::regex_match(peer_case.name.begin(), peer_case.name.end(), difference.cases) ||
          !std::regex_match(text, difference.text)) {
        continue;
      }
      ++difference.num_tokens;
      return;
    }
    if (num_unexplained_[peer_case.name]++ >= kShownMax) return;
    FAIL_CHECK(fmt::format("{}: only {} allows {}", peer_case.name,
                           kSideNames[static_cast<size_t>(side)],
                           absl::CHexEscape({text.data(), text.size()})));
  }

  const PeerVocabulary tokens_;
  std::mt19937 random_;
  std::unique_ptr<SpecdBackend> own_;
  std::shared_ptr<GrammarBackend> peer_;
  std::vector<Difference> differences_;
  std::map<std::string_view, size_t> num_unexplained_;
  int64_t num_masks_ = 0;
};

}  // namespace

TEST_SUITE("oracle") {
  TEST_CASE("specd's masks are xgrammar's, but for differences that are listed with a reason") {
    PeerWalks walks;
    for (const PeerCase& peer_case : kPeerCases) {
      CAPTURE(peer_case.name);
      walks.Compare(peer_case);
    }
    walks.CheckEveryDifferenceIsUsed();
    CHECK(walks.num_masks() > 5000);
  }
}

}  // namespace specd::grammar
