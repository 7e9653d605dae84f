#include "tests/fuzz/judge/smaller_constraints.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "tests/fuzz/judge/json_print.h"

namespace specd::grammar {
namespace {

constexpr size_t kSmallerMax = 2000;

// A value is changed in place, the whole is printed, and the value is put back.
class SmallerSchemas {
 public:
  explicit SmallerSchemas(JsonValue root) : root_(std::move(root)) {}

  std::vector<std::string> List() && {
    size_bytes_ = PrintJson(root_).size();
    Visit(&root_);
    std::stable_sort(texts_.begin(), texts_.end(), [](const std::string& a, const std::string& b) {
      return a.size() < b.size();
    });
    return std::move(texts_);
  }

 private:
  void Add() {
    std::string text = PrintJson(root_);
    if (text.size() < size_bytes_ && texts_.size() < kSmallerMax) texts_.push_back(std::move(text));
  }
  void Visit(JsonValue* value) {
    if (texts_.size() >= kSmallerMax) return;
    const JsonValue kept = *value;
    if (kept.type == JsonType::kNumber || kept.IsString()) return;
    *value = {.type = JsonType::kObject};
    Add();
    for (size_t i = 0; i < kept.values.size(); ++i) {
      *value = kept;
      value->values.erase(value->values.begin() + static_cast<ptrdiff_t>(i));
      if (kept.IsObject()) value->names.erase(value->names.begin() + static_cast<ptrdiff_t>(i));
      Add();
      *value = kept.values[i];
      Add();
    }
    *value = kept;
    for (JsonValue& part : value->values) Visit(&part);
  }

  JsonValue root_;
  size_t size_bytes_ = 0;
  std::vector<std::string> texts_;
};

std::vector<std::string> SmallerTexts(const std::string& text) {
  std::vector<std::string> texts;
  for (size_t length = text.size() / 2; length > 0; length /= 2) {
    for (size_t begin = 0; begin + length <= text.size(); begin += length) {
      std::string smaller = text;
      texts.push_back(smaller.erase(begin, length));
    }
  }
  if (texts.size() > kSmallerMax) texts.resize(kSmallerMax);
  return texts;
}

}  // namespace

std::vector<std::string> SmallerConstraints(const GrammarRequest& request) {
  if (request.kind != GrammarKind::kJsonSchema) return SmallerTexts(request.text);
  const auto schema = ParseJson(request.text);
  if (!schema.ok()) return SmallerTexts(request.text);
  return SmallerSchemas(**schema).List();
}

}  // namespace specd::grammar
