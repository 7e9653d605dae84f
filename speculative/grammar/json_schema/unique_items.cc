#include "speculative/grammar/json_schema/unique_items.h"

#include <algorithm>
#include <set>
#include <utility>

#include "speculative/grammar/json_schema/json_text.h"
#include "speculative/grammar/rules/frame_rule.h"

namespace specd::grammar {
namespace {

class TextList {
 public:
  // False: there are too many.
  bool Add(std::string text) {
    if (known_.insert(text).second) texts_.push_back(std::move(text));
    return texts_.size() <= kSetKeysMax;
  }
  // A number may be written in several ways where it takes many digits; the first is kept.
  bool AddNumber(const Decimal& value, std::string text) {
    return !numbers_.insert(value).second || Add(std::move(text));
  }
  // False: there are too many, or values that are not whole.
  bool AddRange(const NumberSchema& schema) {
    const bool is_finite = schema.kind == NumberSchema::Kind::kInteger && schema.min.has_value() &&
                           schema.max.has_value() && schema.min->value.IsPlain() &&
                           schema.max->value.IsPlain();
    if (!is_finite) return false;
    size_t num_looks = 0;
    for (Decimal value = schema.min->value.Ceiling(); value <= schema.max->value;
         value = value.PlusOne()) {
      if (++num_looks > kSetKeysMax) return false;
      if (schema.Allows(value) && !AddNumber(value, value.ToPlainText())) return false;
    }
    return true;
  }
  // False: it is no scalar, or there are too many.
  bool AddConstant(const JsonValue& value) {
    switch (value.type) {
      case JsonType::kNull:
        return Add("null");
      case JsonType::kBoolean:
        return Add(value.boolean ? "true" : "false");
      case JsonType::kNumber:
        return AddNumber(Decimal::Parse(value.text), CanonicalNumber(value.text));
      case JsonType::kString:
        return Add(QuoteJson(value.text));
      case JsonType::kArray:
      case JsonType::kObject:
        break;
    }
    return false;
  }
  bool AddAlternative(const SchemaAlternative& alternative) {
    if (alternative.constant != nullptr) {
      return alternative.is_constant_unoffered || AddConstant(*alternative.constant);
    }
    switch (alternative.type) {
      case JsonType::kNull:
        return Add("null");
      case JsonType::kBoolean:
        return (!alternative.allows_true || Add("true")) &&
               (!alternative.allows_false || Add("false"));
      case JsonType::kNumber:
        return AddRange(alternative.number);
      default:
        return false;
    }
  }

  List<std::string> Sorted() && {
    std::sort(texts_.begin(), texts_.end());
    return std::move(texts_);
  }

 private:
  List<std::string> texts_;
  std::set<std::string> known_;
  std::set<Decimal> numbers_;
};

}  // namespace

absl::StatusOr<std::optional<List<std::string>>> FiniteItems(const SchemaSet& set,
                                                             SchemaEvaluator* evaluator) {
  using Texts = std::optional<List<std::string>>;
  if (set.empty()) return Texts();
  if (IsNothing(set)) return Texts(List<std::string>());
  const absl::StatusOr<SchemaEvaluator::Shared> allowed = evaluator->Of(set);
  if (!allowed.ok()) return allowed.status();
  TextList list;
  for (const SchemaAlternative& alternative : (*allowed)->alternatives) {
    const absl::StatusOr<bool> is_empty = evaluator->algebra().IsEmpty(alternative);
    if (!is_empty.ok()) return is_empty.status();
    if (!*is_empty && !list.AddAlternative(alternative)) return Texts();
  }
  return Texts(std::move(list).Sorted());
}

}  // namespace specd::grammar
