#include "detokenizer/tokenizer_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "detokenizer/gguf_tokenizer.h"
#include "detokenizer/json_root.h"
#include "detokenizer/json_words.h"
#include "detokenizer/open_regular_file.h"
#include "detokenizer/rank_file.h"
#include "detokenizer/rwkv_vocabulary.h"
#include "detokenizer/sentence_piece_model.h"
#include "detokenizer/special_tokens.h"
#include "detokenizer/tekken_json.h"
#include "detokenizer/tokenizer_json.h"

namespace specd {
namespace {

absl::Status CheckSize(std::string_view bytes, std::string_view name) {
  if (bytes.size() <= kTokenizerFileSizeBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{}: the file is larger than {} bytes, the most that specd reads; is this the "
                  "tokenizer.json of a model?",
                  name, kTokenizerFileSizeBytesMax));
}

absl::StatusOr<std::string> ReadAll(std::FILE* file, const std::string& path,
                                    const FileRole& role) {
  // Reads by growing: the file may grow meanwhile. One byte more than the limit is enough to refuse
  // the file.
  std::string bytes;
  size_t num_read = 1;
  while (num_read > 0 && bytes.size() <= kTokenizerFileSizeBytesMax) {
    constexpr size_t kStepSizeBytes = size_t{1} << 20;
    const size_t size_bytes = bytes.size();
    bytes.resize(size_bytes + kStepSizeBytes);
    num_read = std::fread(bytes.data() + size_bytes, 1, kStepSizeBytes, file);
    bytes.resize(size_bytes + num_read);
  }
  if (std::ferror(file) != 0) return UnreadableFile(path, role, errno);
  if (absl::Status status = CheckSize(bytes, path); !status.ok()) return status;
  return bytes;
}

absl::StatusOr<std::vector<SpecialToken>> FindSpecialTokens(const std::string& path,
                                                            size_t num_ranks) {
  const size_t slash = path.rfind('/');
  const size_t begin = slash == std::string::npos ? 0 : slash + 1;
  const std::string config_path = path.substr(0, begin) + "tokenizer_config.json";
  constexpr FileRole kRole = {.what = "the file of special tokens",
                              .example = "tokenizer_config.json"};
  const absl::StatusOr<OpenedFile> file = OpenRegularFile(config_path, kRole);
  if (file.ok()) {
    const absl::StatusOr<std::string> config = ReadAll(file->get(), config_path, kRole);
    if (!config.ok()) return config.status();
    return ParseTokenizerConfig(*config, config_path);
  }
  if (!absl::IsNotFound(file.status())) return file.status();
  std::vector<SpecialToken> known = KnownSpecialTokens(path.substr(begin), num_ranks);
  if (!known.empty()) return known;
  return absl::InvalidArgumentError(fmt::format(
      "{}: this rank file has {} ranks and no special tokens, and specd knows only those "
      "of {}; put the model's tokenizer_config.json with its added_tokens_decoder into "
      "the same folder",
      path, num_ranks, kKnownRankFiles));
}

// Files that are taken for a tokenizer by mistake, by the bytes that they begin with.
struct OtherKind {
  std::string_view begin;
  std::string_view words;
};
constexpr OtherKind kOtherKinds[] = {
    {"PK\x03\x04", "a ZIP archive, such as a checkpoint of PyTorch"},
    {"\x1F\x8B", "a gzip file"},
};

// A GGUF file has the weights of its model, too, and may be larger than the memory.
bool IsGguf(std::FILE* file) {
  char begin[kGgufMagic.size()] = {};
  const size_t size_bytes = std::fread(begin, 1, sizeof begin, file);
  std::rewind(file);
  return std::string_view(begin, size_bytes) == kGgufMagic;
}

absl::StatusOr<Vocabulary> ReadJson(std::string_view json, std::string_view name) {
  JsonRoot file;
  if (absl::Status status = file.Parse(json, name); !status.ok()) return status;
  if (IsTekken(file)) return ReadTekken(file, name);
  if (file.Has("added_tokens_decoder") && !file.Has("model")) {
    return absl::InvalidArgumentError(fmt::format(
        "{}: this is a tokenizer_config.json, which has no vocabulary; name the tokenizer.json, or "
        "the rank file, in the same folder",
        name));
  }
  return ReadTokenizerJson(file, name);
}

}  // namespace

absl::StatusOr<Vocabulary> ParseTokenizerJson(std::string_view json, std::string_view name) {
  if (absl::Status status = CheckSize(json, name); !status.ok()) return status;
  return ReadJson(json, name);
}

absl::StatusOr<Vocabulary> OpenTokenizer(const std::string& path) {
  constexpr FileRole kRole = {.what = "the tokenizer file", .example = "tokenizer.json"};
  const absl::StatusOr<OpenedFile> file = OpenRegularFile(path, kRole);
  if (!file.ok()) return file.status();
  if (IsGguf(file->get())) return ReadGgufTokenizer(file->get(), path);
  const absl::StatusOr<std::string> bytes = ReadAll(file->get(), path, kRole);
  if (!bytes.ok()) return bytes.status();
  for (const OtherKind& kind : kOtherKinds) {
    if (bytes->compare(0, kind.begin.size(), kind.begin) != 0) continue;
    return absl::UnimplementedError(
        fmt::format("{}: this is {}; {}", path, kind.words, kReadableTokenizers));
  }
  if (IsRankFile(*bytes)) {
    return ParseRankFile(*bytes, path,
                         [&path](size_t count) { return FindSpecialTokens(path, count); });
  }
  if (IsSentencePieceModel(*bytes)) return ParseSentencePieceModel(*bytes, path);
  if (IsRwkvVocabulary(*bytes)) return ParseRwkvVocabulary(*bytes, path);
  return ReadJson(*bytes, path);
}

}  // namespace specd
