#include "detokenizer/rank_file.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "detokenizer/json_words.h"
#include "detokenizer/text_lines.h"

namespace specd {
namespace {

struct Line {
  std::string bytes;
  TokenId rank = 0;
};

// Nothing if the line is not base64, a space and a number. Base64 has one spelling of any bytes; a
// decoder that takes others would also take words of a text.
std::optional<Line> ReadLine(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0) return std::nullopt;
  const absl::string_view base64(line.data(), space);
  const absl::string_view number(line.data() + space + 1, line.size() - space - 1);
  Line read;
  if (!absl::Base64Unescape(base64, &read.bytes) || absl::Base64Escape(read.bytes) != base64 ||
      number.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(number, &read.rank) || read.rank >= kVocabSizeMax) {
    return std::nullopt;
  }
  return read;
}

absl::Status AddSpecialTokens(const std::vector<SpecialToken>& tokens, std::string_view name,
                              Vocabulary::Builder* builder) {
  for (const SpecialToken& token : tokens) {
    if (token.content.size() > Vocabulary::kTokenSizeBytesMax) {
      return absl::InvalidArgumentError(
          fmt::format("{}: the special token {} has {} bytes, allowed are 0..{}; shorten it", name,
                      token.id, token.content.size(), Vocabulary::kTokenSizeBytesMax));
    }
    if (builder->Contains(token.id)) {
      return absl::InvalidArgumentError(
          fmt::format("{}: the special token {} has the id {}, which stands for another token; the "
                      "special tokens are those of another model, or name one id twice",
                      name, Quote(token.content), token.id));
    }
    builder->Set(token.id, token.content, {.added = true, .special = token.special});
  }
  return absl::OkStatus();
}

}  // namespace

bool IsRankFile(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::string_view line = TakeLine(&bytes);
    if (!line.empty()) return ReadLine(line).has_value();
  }
  return false;
}

absl::StatusOr<Vocabulary> ParseRankFile(
    std::string_view bytes, std::string_view name,
    const std::function<absl::StatusOr<std::vector<SpecialToken>>(size_t num_ranks)>&
        find_special_tokens) {
  const auto invalid = [name](size_t number, std::string_view message) {
    return absl::InvalidArgumentError(fmt::format("{}: line {} {}", name, number, message));
  };
  Vocabulary::Builder builder;
  size_t num_ranks = 0;
  for (size_t number = 1; !bytes.empty(); ++number) {
    const std::string_view line = TakeLine(&bytes);
    if (line.empty()) continue;
    const std::optional<Line> read = ReadLine(line);
    if (!read.has_value()) {
      return invalid(number, fmt::format("is {}, expected base64, a space and a rank in 0..{}; "
                                         "download the file again",
                                         QuoteBytes(line), kVocabSizeMax - 1));
    }
    if (read->bytes.size() > Vocabulary::kTokenSizeBytesMax) {
      return invalid(number, fmt::format("has a token of {} bytes, allowed are 0..{}; take it out",
                                         read->bytes.size(), Vocabulary::kTokenSizeBytesMax));
    }
    if (builder.Contains(read->rank)) {
      return invalid(number, fmt::format("has the rank {}, which an earlier line has; give each "
                                         "token a rank of its own",
                                         read->rank));
    }
    builder.Set(read->rank, read->bytes, {});
    ++num_ranks;
  }
  const absl::StatusOr<std::vector<SpecialToken>> special_tokens = find_special_tokens(num_ranks);
  if (!special_tokens.ok()) return special_tokens.status();
  if (absl::Status s = AddSpecialTokens(*special_tokens, name, &builder); !s.ok()) return s;
  return std::move(builder).Build();
}

}  // namespace specd
