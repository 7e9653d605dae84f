// Stop patterns against brute force: random patterns and strings, random splits into tokens, forks
// and openings with outputs. The reference knows the matches of a pattern by asking std::wregex for
// every short text.
#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "detokenizer/stop_matcher.h"
#include "detokenizer/text_stream.h"
#include "speculative/grammar/front_ends/stop_regex.h"
#include "tests/detokenizer/reference_text.h"
#include "tests/detokenizer/stream_driver.h"

namespace specd {
namespace {

constexpr std::wstring_view kAlphabet = L"ab\u00e9 ";
constexpr size_t kLongest = 5;  // characters of a match in a random pattern

std::string Utf8(const std::wstring& text) {
  std::string bytes;
  for (const wchar_t c : text) bytes += reference::EncodeUtf8(static_cast<uint32_t>(c));
  return bytes;
}

class Random {
 public:
  size_t Below(size_t bound) { return random_() % bound; }

  // A pattern of `size` characters at most, with none that matches the empty text.
  std::wstring Pattern(size_t size) {
    std::wstring pattern = Atom();
    size_t used = 1;
    while (used < size && Below(4) != 0) {
      const size_t room = size - used;
      switch (Below(4)) {
        case 0:
          pattern += Atom() + L"?";
          ++used;
          break;
        case 1: {
          const size_t most = 1 + Below(room);
          pattern += Atom() + L"{0," + std::to_wstring(most) + L"}";
          used += most;
          break;
        }
        case 2: {
          const size_t most = 1 + Below(room);
          pattern += L"(?:" + Pattern(most) + L"|" + Pattern(most) + L")";
          used += most;
          break;
        }
        default:
          pattern += Atom();
          ++used;
      }
    }
    return pattern;
  }

  std::string Text(size_t size) {
    std::wstring text;
    for (size_t i = 0; i < size; ++i) text += kAlphabet[Below(kAlphabet.size())];
    return Utf8(text);
  }

 private:
  std::wstring Atom() {
    const wchar_t* const atoms[] = {L"a",    L"b",    L"\u00e9", L" ",
                                    L"[ab]", L"[^a]", L".",      L"[b\u00e9]"};
    return atoms[Below(std::size(atoms))];
  }

  std::mt19937 random_{1117};
};

// The texts that begin at some place and are the shortest match from there.
std::set<std::string> ShortestMatches(const std::wstring& pattern) {
  const std::wregex regex(pattern);
  std::set<std::string> matches;
  std::vector<std::wstring> longer = {L""};
  for (size_t size = 1; size <= kLongest; ++size) {
    std::vector<std::wstring> texts;
    for (const std::wstring& shorter : longer) {
      for (const wchar_t c : kAlphabet) {
        std::wstring text = shorter + c;
        if (std::regex_match(text, regex)) {
          matches.insert(Utf8(text));
        } else {
          texts.push_back(std::move(text));
        }
      }
    }
    longer = std::move(texts);
  }
  return matches;
}

struct Request {
  std::vector<std::string> strings;
  std::vector<std::string> patterns;
  std::vector<std::set<std::string>> matches;  // of each pattern
  std::shared_ptr<const StopSet> stops;
};

Request Draw(Random* random) {
  Request request;
  for (size_t i = random->Below(3); i > 0; --i) {
    request.strings.push_back(random->Text(1 + random->Below(4)));
  }
  for (size_t i = 1 + random->Below(3); i > 0; --i) {
    const std::wstring pattern = random->Pattern(1 + random->Below(kLongest));
    request.patterns.push_back(Utf8(pattern));
    request.matches.push_back(ShortestMatches(pattern));
  }
  auto stops = grammar::MakeStopSet(request.strings, request.patterns);
  REQUIRE_MESSAGE(stops.ok(), stops.status().ToString());
  request.stops = *std::move(stops);
  return request;
}

struct Found {
  size_t begin = 0;
  size_t end = 0;
  int index = 0;
};

// The match that ends first after byte `counted_from`; a string before a pattern, the first of the
// list before others, the longest of one pattern. A pattern's match that ends sooner does not
// count, and is the only one from its place.
std::optional<Found> FindFirst(const Request& request, std::string_view text,
                               size_t counted_from = 0) {
  for (size_t end = counted_from + 1; end <= text.size(); ++end) {
    const auto index_of_pattern = static_cast<int>(request.strings.size());
    for (size_t i = 0; i < request.strings.size(); ++i) {
      if (text.substr(0, end).ends_with(request.strings[i])) {
        return Found{end - request.strings[i].size(), end, static_cast<int>(i)};
      }
    }
    for (size_t i = 0; i < request.matches.size(); ++i) {
      for (size_t begin = 0; begin < end; ++begin) {
        if (request.matches[i].contains(std::string(text.substr(begin, end - begin)))) {
          return Found{begin, end, index_of_pattern + static_cast<int>(i)};
        }
      }
    }
  }
  return std::nullopt;
}

// The longest suffix that begins a string, or a match without being one.
size_t HeldSizeBytes(const Request& request, std::string_view text) {
  size_t held = reference::HeldSizeBytes(text, request.strings);
  for (size_t begin = 0; begin < text.size(); ++begin) {
    const std::string_view suffix = text.substr(begin);
    for (const auto& matches : request.matches) {
      const bool begins = std::any_of(matches.begin(), matches.end(), [&](const auto& match) {
        return match.size() > suffix.size() && match.starts_with(suffix);
      });
      if (begins) held = std::max(held, suffix.size());
    }
  }
  return held;
}

std::vector<TestToken> Split(std::string_view text, Random* random) {
  std::vector<TestToken> tokens;
  while (!text.empty()) {
    const size_t size = std::min(text.size(), 1 + random->Below(4));
    tokens.push_back({std::string(text.substr(0, size))});
    text.remove_prefix(size);
  }
  return tokens;
}

// The text after so many first tokens, without an unfinished character.
std::string TextOf(const std::vector<TestToken>& tokens, size_t count) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) bytes += tokens[i].bytes;
  return reference::DecodeUtf8(bytes).text;
}

std::string Refusal(const std::string& pattern) {
  const auto compiled = grammar::CompileStopPatterns(std::vector<std::string>{"ok", pattern});
  return compiled.ok() ? "" : compiled.status().ToString();
}

TEST_SUITE("unit") {
  TEST_CASE("random patterns end a text where brute force ends it, however it is cut") {
    Random random;
    int num_by_pattern = 0;
    int num_forks = 0;
    for (int trial = 0; trial < 1500; ++trial) {
      const Request request = Draw(&random);
      for (int text_index = 0; text_index < 6; ++text_index) {
        const std::string text = random.Text(1 + random.Below(14));
        const std::vector<TestToken> tokens = Split(text, &random);
        const size_t min_tokens = random.Below(3) == 0 ? random.Below(tokens.size()) : 0;
        const bool include_stop = random.Below(2) == 0;
        const size_t fork_at = random.Below(tokens.size() + 1);
        const Vocabulary vocabulary = MakeVocabulary(tokens);
        CAPTURE(request.patterns);
        CAPTURE(request.strings);
        CAPTURE(text);
        TextStream stream(&vocabulary, request.stops,
                          {.include_stop = include_stop, .min_tokens = min_tokens});
        const auto expected = FindFirst(request, text, TextOf(tokens, min_tokens).size());
        std::string released;
        std::optional<int> stop;
        std::optional<TextStream> fork;
        size_t fork_begin = 0;
        std::string forked;
        for (size_t i = 0; i < tokens.size() && !stop; ++i) {
          if (i == fork_at) {
            fork = stream.Fork();
            fork_begin = released.size();
          }
          TextChunk chunk;
          stop = stream.Push(static_cast<TokenId>(i), false, &chunk);
          released += chunk.text;
          TextChunk copied;
          if (fork.has_value()) CHECK(fork->Push(static_cast<TokenId>(i), false, &copied) == stop);
          forked += copied.text;
          const std::string so_far = TextOf(tokens, i + 1);
          CHECK(stop.has_value() == (expected.has_value() && expected->end <= so_far.size()));
          if (stop || min_tokens > 0) continue;
          REQUIRE(released.size() == so_far.size() - HeldSizeBytes(request, so_far));
        }
        if (!stop) {
          TextChunk chunk;
          stream.Finish(TextEnd::kFlush, &chunk);
          released += chunk.text;
          CHECK(released == text);
          continue;
        }
        REQUIRE(stop == expected->index);
        CHECK(released == text.substr(0, include_stop ? expected->end : expected->begin));
        num_by_pattern += *stop >= static_cast<int>(request.strings.size()) ? 1 : 0;
        if (!fork.has_value()) continue;
        ++num_forks;
        CHECK(forked == released.substr(fork_begin));
      }
    }
    CHECK(num_by_pattern > 3000);
    CHECK(num_forks > 1000);
  }

  TEST_CASE("a match that began in outputs given at the opening takes none of their text back") {
    Random random;
    int num_across = 0;
    for (int trial = 0; trial < 3000; ++trial) {
      const Request request = Draw(&random);
      const std::string text = random.Text(2 + random.Below(12));
      const std::vector<TestToken> tokens = Split(text, &random);
      const size_t num_given = random.Below(tokens.size());
      const std::string given = TextOf(tokens, num_given);
      const Vocabulary vocabulary = MakeVocabulary(tokens);
      std::vector<TokenId> outputs;
      for (size_t i = 0; i < num_given; ++i) outputs.push_back(static_cast<TokenId>(i));
      TextStream stream = TextStream::After({.output_tail = outputs, .num_outputs = num_given},
                                            &vocabulary, request.stops, {});
      std::string released;
      std::optional<int> stop;
      for (size_t i = num_given; i < tokens.size() && !stop; ++i) {
        TextChunk chunk;
        stop = stream.Push(static_cast<TokenId>(i), false, &chunk);
        released += chunk.text;
      }
      CAPTURE(request.patterns);
      CAPTURE(request.strings);
      CAPTURE(text);
      CAPTURE(given);
      const auto expected = FindFirst(request, text, given.size());
      REQUIRE(stop.has_value() == expected.has_value());
      if (!stop) continue;
      CHECK(*stop == expected->index);
      const size_t end = std::max(expected->begin, given.size());
      CHECK(released == text.substr(given.size(), end - given.size()));
      num_across += expected->begin < given.size() ? 1 : 0;
    }
    CHECK(num_across > 100);
  }

  TEST_CASE("the shortest match from each place counts, and the longest that ends at one byte") {
    const auto text_of = [](const std::string& pattern, const std::string& text) {
      const auto stops = grammar::MakeStopSet({}, {pattern});
      REQUIRE_MESSAGE(stops.ok(), stops.status().ToString());
      const Vocabulary vocabulary = MakeVocabulary(Plain({text}));
      TextStream stream(&vocabulary, *stops, {});
      TextChunk chunk;
      CHECK(stream.Push(0, false, &chunk) == std::optional<int>(0));
      return chunk.text;
    };
    CHECK(text_of("END.*", "the END of it") == "the ");
    CHECK(text_of("a+", "baaa") == "b");
    CHECK(text_of("\\s{0,8}Human:", "yes.\n\n Human: no") == "yes.");
    CHECK(text_of("(?:x|y)?z", "axz") == "a");
    CHECK(text_of("[0-9]{3}", "12-1234") == "12-");
    // Bug class: \w of a pattern and bytes of a character.
    CHECK(text_of("caf.!", "un caf\xC3\xA9!") == "un ");
  }

  TEST_CASE("many places where a match may have begun are followed at once") {
    const auto stops = grammar::MakeStopSet({}, {"[a-z]{1,900}X", "[a-z]{3}Y"});
    REQUIRE(stops.ok());
    StopState state;
    const std::string letters(2000, 'q');
    CHECK_FALSE((*stops)->Advance(&state, letters).has_value());
    CHECK((*stops)->HeldSizeBytes(state) == 900);
    StopState other = state;
    const auto match = (*stops)->Advance(&state, "X");
    REQUIRE(match.has_value());
    CHECK(match->size_bytes == 901);
    const auto second = (*stops)->Advance(&other, "Y");
    REQUIRE(second.has_value());
    CHECK(second->index == 1);
    CHECK(second->size_bytes == 4);
  }

  TEST_CASE("a pattern that cannot be honoured is refused by name") {
    CHECK(Refusal("a").empty());
    const std::pair<const char*, const char*> refused[] = {{"a*", "empty text"},
                                                           {"(?:a|)", "empty text"},
                                                           {"<[^>]*>", "1024 bytes"},
                                                           {"a.{0,400}b", "1024 bytes"},
                                                           {"^a", "^, $"},
                                                           {"b|a$", "^, $"},
                                                           {"(?=a)a", "lookaheads"},
                                                           {"a(?!b)", "lookaheads"},
                                                           {"\\bword", "\\b"},
                                                           {"(a)\\1", "backreference"},
                                                           {"[^\\s\\S]", "no text"},
                                                           {"(", "stop_regex[1]"},
                                                           {"\xFF", "UTF-8"}};
    for (const auto& [pattern, word] : refused) {
      const std::string text = Refusal(pattern);
      const std::string captured = pattern;
      CAPTURE(captured);
      CHECK_MESSAGE(text.find(word) != std::string::npos, text);
      CHECK(text.find("stop_regex[1]") != std::string::npos);
    }
    // The work is bounded, and so are the states of all patterns together.
    CHECK_FALSE(Refusal("(?:[ab]{0,300}a[ab]{12}|b){1,9}c").empty());
    std::vector<std::string> many(64, "x.{1,250}y");
    const auto stops = grammar::MakeStopSet({}, many);
    REQUIRE_FALSE(stops.ok());
    CHECK(stops.status().ToString().find("stop_regex") != std::string::npos);
  }
}

}  // namespace
}  // namespace specd
