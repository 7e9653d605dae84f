#include "detokenizer/json_root.h"

#include <fmt/format.h>

#include <string>

#include "absl/strings/escaping.h"

namespace specd {

absl::Status JsonRoot::Parse(std::string_view json, std::string_view name) {
  const auto invalid = [name](std::string_view message) {
    return absl::InvalidArgumentError(fmt::format("{}: {}", name, message));
  };
  const simdjson::error_code error = parser_.parse(json.data(), json.size()).get(root_);
  if (!error && root_.is_object()) return absl::OkStatus();

  constexpr std::string_view kBlank = " \t\r\n";
  const size_t first = json.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return invalid("the file is empty; download it again");
  constexpr std::string_view kLfsPointer = "version https://git-lfs.github.com/";
  if (json.substr(first, kLfsPointer.size()) == kLfsPointer) {
    return invalid(
        "the file is a Git LFS pointer and not the tokenizer itself; run `git lfs pull`");
  }
  if (json[first] != '{') {
    return invalid(
        fmt::format("the file is not a JSON object, it begins with \"{}\"; name the "
                    "tokenizer.json of the model",
                    absl::CHexEscape(std::string(json.substr(first, 20)))));
  }
  if (json[json.find_last_not_of(kBlank)] != '}') {
    return invalid(
        fmt::format("the JSON is cut short: after {} bytes it ends before its last brace; "
                    "download the file again",
                    json.size()));
  }
  return invalid(fmt::format("the file is not valid JSON ({}); download it again",
                             simdjson::error_message(error)));
}

}  // namespace specd
