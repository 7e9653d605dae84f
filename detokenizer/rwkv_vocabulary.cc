#include "detokenizer/rwkv_vocabulary.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "detokenizer/python_literal.h"
#include "detokenizer/text_lines.h"

namespace specd {
namespace {

struct Line {
  TokenId id = 0;
  std::string bytes;
};

template <typename Number>
bool ReadNumber(std::string_view text, Number* number) {
  return text.find_first_not_of("0123456789") == std::string_view::npos &&
         absl::SimpleAtoi(absl::string_view(text.data(), text.size()), number);
}

std::optional<Line> ReadLine(std::string_view line) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == last || !simdjson::validate_utf8(line.data(), line.size())) return std::nullopt;
  Line read;
  size_t size_bytes = 0;
  if (!ReadNumber(line.substr(0, first), &read.id) || read.id >= kVocabSizeMax ||
      !ReadNumber(line.substr(last + 1), &size_bytes)) {
    return std::nullopt;
  }
  std::optional<std::string> bytes = ParsePythonLiteral(line.substr(first + 1, last - first - 1));
  if (!bytes.has_value() || bytes->size() != size_bytes) return std::nullopt;
  read.bytes = *std::move(bytes);
  return read;
}

}  // namespace

bool IsRwkvVocabulary(std::string_view bytes) { return ReadLine(TakeLine(&bytes)).has_value(); }

absl::StatusOr<Vocabulary> ParseRwkvVocabulary(std::string_view bytes, std::string_view name) {
  const auto invalid = [name](size_t number, std::string_view message) {
    return absl::InvalidArgumentError(
        fmt::format("{}: line {} {}; download the file again", name, number, message));
  };
  Vocabulary::Builder builder;
  for (size_t number = 1; !bytes.empty(); ++number) {
    const std::string_view line = TakeLine(&bytes);
    if (line.empty()) continue;
    const std::optional<Line> read = ReadLine(line);
    if (!read.has_value()) {
      return invalid(number,
                     fmt::format("is {}, expected an id in 0..{}, a str or bytes literal of "
                                 "Python and the number of its bytes",
                                 QuoteBytes(line), kVocabSizeMax - 1));
    }
    if (read->bytes.size() > Vocabulary::kTokenSizeBytesMax) {
      return invalid(number, fmt::format("has a token of {} bytes, allowed are 0..{}",
                                         read->bytes.size(), Vocabulary::kTokenSizeBytesMax));
    }
    if (builder.Contains(read->id)) {
      return invalid(number, fmt::format("has the id {}, which an earlier line has", read->id));
    }
    builder.Set(read->id, read->bytes, {});
  }
  return std::move(builder).Build();
}

}  // namespace specd
