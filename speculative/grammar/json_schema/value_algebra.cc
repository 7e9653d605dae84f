#include "speculative/grammar/json_schema/value_algebra.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "kernels/core/check.h"
#include "speculative/grammar/base/counted.h"

namespace specd::grammar {
namespace {

// A deeper contradiction is not looked for: what is left of it is an empty rule.
constexpr uint32_t kEmptyDepthMax = 4;
constexpr size_t kEmptyItemsMax = 64;
// Estimates, in units of Budget: some microseconds for a look, and part of one for a merge and for
// each property.
constexpr uint64_t kLookUnits = 512;
constexpr uint64_t kMergeUnits = 32;

absl::Status TooManyAlternatives() {
  return absl::ResourceExhaustedError(
      fmt::format("its branches combine to more than {} alternatives", kAlternativesMax));
}

SchemaAlternative BooleanAlternative(bool value) {
  return {.type = JsonType::kBoolean, .allows_true = value, .allows_false = !value};
}

SchemaAlternative NumberAlternative(NumberSchema number) {
  return {.type = JsonType::kNumber, .number = std::move(number)};
}

// Some member of the object may meet the need, as far as one look shows.
bool MayMeet(const ObjectSchema& object, const NeededMember& needed, DfaTable* dfas) {
  const auto is_possible = [&](const SchemaSet& schemas) {
    return !IsNothing(UniteSets(schemas, needed.schemas));
  };
  for (const PropertySchema& property : object.properties) {
    if (needed.names->Accepts(property.name) && is_possible(property.schemas)) return true;
  }
  return std::any_of(object.others.begin(), object.others.end(), [&](const NameClass& other) {
    return is_possible(other.schemas) &&
           (other.names == nullptr || dfas->Overlap(other.names, needed.names));
  });
}

// A merge that leaves nothing, as far as one look shows.
bool IsPlainlyEmpty(const SchemaAlternative& alternative, DfaTable* dfas) {
  switch (alternative.type) {
    case JsonType::kNull:
      return false;
    case JsonType::kBoolean:
      return !alternative.allows_true && !alternative.allows_false;
    case JsonType::kNumber:
      return alternative.number.IsEmpty();
    case JsonType::kString:
      return alternative.string.IsEmpty();
    case JsonType::kArray:
      return alternative.array.min_items > alternative.array.max_items;
    case JsonType::kObject: {
      const ObjectSchema& object = alternative.object;
      uint32_t num_required = 0;
      for (const PropertySchema& property : object.properties) {
        if (!property.is_required) continue;
        if (IsNothing(property.schemas)) return true;
        ++num_required;
      }
      for (const NeededMember& needed : object.needed) {
        if (!MayMeet(object, needed, dfas)) return true;
      }
      return std::max(num_required, object.min_properties) > object.max_properties;
    }
  }
  SPECD_CHECK(false);
  return false;
}

}  // namespace

absl::StatusOr<std::optional<SchemaAlternative>> ValueAlgebra::MergeConstant(
    const SchemaAlternative& constant, const SchemaAlternative& other) {
  const absl::StatusOr<bool> is_allowed = validator_.AllowsOne(other, *constant.constant, false);
  if (!is_allowed.ok()) return is_allowed.status();
  if (!*is_allowed) return std::optional<SchemaAlternative>();
  // Of strings, only a format can forbid what is allowed.
  const bool is_asked = other.type != JsonType::kString || !other.string.formats.empty();
  const absl::StatusOr<bool> is_offered =
      is_asked ? validator_.AllowsOne(other, *constant.constant, true) : is_allowed;
  if (!is_offered.ok()) return is_offered.status();
  std::optional<SchemaAlternative> merged = constant;
  if (!*is_offered) merged->is_constant_unoffered = true;
  return merged;
}

absl::StatusOr<std::optional<SchemaAlternative>> ValueAlgebra::Merge(const SchemaAlternative& a,
                                                                     const SchemaAlternative& b) {
  if (a.constant != nullptr) return MergeConstant(a, b);
  if (b.constant != nullptr) return MergeConstant(b, a);
  std::optional<SchemaAlternative> merged = SchemaAlternative{.type = a.type};
  switch (a.type) {
    case JsonType::kNull:
      break;
    case JsonType::kBoolean:
      merged->allows_true = a.allows_true && b.allows_true;
      merged->allows_false = a.allows_false && b.allows_false;
      break;
    case JsonType::kNumber: {
      absl::StatusOr<NumberSchema> number = MergeNumbers(a.number, b.number);
      if (!number.ok()) return number.status();
      merged->number = *std::move(number);
      break;
    }
    case JsonType::kString: {
      absl::StatusOr<StringSchema> string = MergeStrings(a.string, b.string, &source_.dfas());
      if (!string.ok()) return string.status();
      merged->string = *std::move(string);
      break;
    }
    case JsonType::kArray:
      merged->array = MergeArrays(a.array, b.array);
      break;
    case JsonType::kObject: {
      if (ArePlainlyApart(a.object, b.object)) return std::optional<SchemaAlternative>();
      absl::StatusOr<ObjectSchema> object = MergeObjects(a.object, b.object, &source_.dfas());
      if (!object.ok()) return object.status();
      merged->object = *std::move(object);
      break;
    }
  }
  if (IsPlainlyEmpty(*merged, &source_.dfas())) merged.reset();
  return merged;
}

absl::StatusOr<AllowedValues> ValueAlgebra::And(const AllowedValues& a, const AllowedValues& b) {
  AllowedValues both = {.is_exact = a.is_exact && b.is_exact};
  for (const SchemaAlternative& left : a.alternatives) {
    for (const SchemaAlternative& right : b.alternatives) {
      if (left.type != right.type) continue;
      const size_t num_properties = left.object.properties.size() + right.object.properties.size();
      if (!Budget::Spend(kMergeUnits * (1 + num_properties))) return Budget::Refusal();
      absl::StatusOr<std::optional<SchemaAlternative>> merged = Merge(left, right);
      if (!merged.ok()) return merged.status();
      if (!merged->has_value()) continue;
      if (both.alternatives.size() == kAlternativesMax) return TooManyAlternatives();
      both.alternatives.push_back(*std::move(*merged));
    }
  }
  return both;
}

absl::StatusOr<AllowedValues> ValueAlgebra::Or(AllowedValues a, const AllowedValues& b) {
  if (a.alternatives.size() + b.alternatives.size() > kAlternativesMax) {
    return TooManyAlternatives();
  }
  a.is_exact = a.is_exact && b.is_exact;
  a.alternatives.insert(a.alternatives.end(), b.alternatives.begin(), b.alternatives.end());
  return a;
}

absl::StatusOr<AllowedValues> ValueAlgebra::Not(const AllowedValues& allowed) {
  if (!allowed.is_exact) return absl::UnimplementedError("a part of it is not enforced");
  AllowedValues forbidden = AnyValue();
  List<std::string_view> strings;
  for (const SchemaAlternative& alternative : allowed.alternatives) {
    if (alternative.constant != nullptr && alternative.type == JsonType::kString &&
        !alternative.is_constant_unoffered) {
      strings.push_back(alternative.constant->text);
      continue;
    }
    absl::StatusOr<List<SchemaAlternative>> others = Forbidden(alternative);
    if (!others.ok()) return others.status();
    AllowedValues rest = {.alternatives = *std::move(others)};
    for (const JsonType type : kJsonTypes) {
      if (type != alternative.type) rest.alternatives.push_back({.type = type});
    }
    absl::StatusOr<AllowedValues> narrowed = And(forbidden, rest);
    if (!narrowed.ok()) return narrowed.status();
    forbidden = *std::move(narrowed);
    forbidden.Absorb();
  }
  if (strings.empty()) return forbidden;
  absl::StatusOr<ByteDfa> these = TheseStrings(strings);
  if (!these.ok()) return these.status();
  absl::StatusOr<List<StringSchema>> others =
      ForbiddenStrings({.values = source_.dfas().Share(*std::move(these))}, &source_.dfas());
  if (!others.ok()) return others.status();
  AllowedValues rest;
  for (const JsonType type : kJsonTypes) {
    if (type != JsonType::kString) rest.alternatives.push_back({.type = type});
  }
  for (StringSchema& other : *others) {
    rest.alternatives.push_back({.type = JsonType::kString, .string = std::move(other)});
  }
  return And(forbidden, rest);
}

absl::StatusOr<List<SchemaAlternative>> ValueAlgebra::Forbidden(
    const SchemaAlternative& alternative) {
  List<SchemaAlternative> forbidden;
  switch (alternative.type) {
    case JsonType::kNull:
      return forbidden;
    case JsonType::kBoolean:
      if (alternative.constant != nullptr) {
        forbidden.push_back(BooleanAlternative(!alternative.constant->boolean));
        return forbidden;
      }
      if (!alternative.allows_true) forbidden.push_back(BooleanAlternative(true));
      if (!alternative.allows_false) forbidden.push_back(BooleanAlternative(false));
      return forbidden;
    case JsonType::kNumber: {
      NumberSchema number = alternative.number;
      if (alternative.constant != nullptr) {
        const Decimal value = Decimal::Parse(alternative.constant->text);
        number = {.min = NumberBound{value}, .max = NumberBound{value}};
      }
      absl::StatusOr<List<NumberSchema>> others = ForbiddenNumbers(number);
      if (!others.ok()) return others.status();
      for (NumberSchema& other : *others) forbidden.push_back(NumberAlternative(std::move(other)));
      return forbidden;
    }
    case JsonType::kString: {
      if (alternative.constant != nullptr || !alternative.string.formats.empty()) {
        return absl::UnimplementedError("the texts that a format excludes are not offered");
      }
      absl::StatusOr<List<StringSchema>> others =
          ForbiddenStrings(alternative.string, &source_.dfas());
      if (!others.ok()) return others.status();
      for (StringSchema& other : *others) {
        forbidden.push_back({.type = JsonType::kString, .string = std::move(other)});
      }
      return forbidden;
    }
    case JsonType::kArray:
    case JsonType::kObject:
      break;
  }
  if (alternative.constant != nullptr) {
    return absl::UnimplementedError("it excludes one array or object");
  }
  return alternative.type == JsonType::kArray ? ForbiddenArrays(alternative.array)
                                              : ForbiddenObjects(alternative.object);
}

absl::StatusOr<List<SchemaAlternative>> ValueAlgebra::ForbiddenArrays(const ArraySchema& array) {
  if (!array.unoffered.empty()) {
    return absl::UnimplementedError(
        fmt::format("it excludes arrays by {}", array.unoffered[0].keyword));
  }
  List<SchemaAlternative> forbidden;
  const auto add = [&]() -> ArraySchema& {
    return forbidden.emplace_back(SchemaAlternative{.type = JsonType::kArray}).array;
  };
  if (array.min_items > 0) add().max_items = array.min_items - 1;
  if (array.max_items != kUnbounded) add().min_items = array.max_items + 1;
  const uint32_t num_prefix = array.prefix.size();
  for (uint32_t i = 0; i < num_prefix; ++i) {
    for (const SchemaSet& opposite : Opposites(array.prefix[i])) {
      ArraySchema& other = add();
      other.prefix.resize(i + size_t{1});
      other.prefix[i] = opposite;
      other.min_items = i + 1;
    }
  }
  for (const SchemaSet& opposite : Opposites(array.rest)) {
    add().contained.push_back({.schemas = opposite, .from = num_prefix});
  }
  for (const ContainedItems& contained : array.contained) {
    if (contained.min > 0) {
      add().contained.push_back({.schemas = contained.schemas,
                                 .from = contained.from,
                                 .min = 0,
                                 .max = contained.min - 1});
    }
    if (contained.max != kUnbounded) {
      add().contained.push_back(
          {.schemas = contained.schemas, .from = contained.from, .min = contained.max + 1});
    }
  }
  return forbidden;
}

absl::StatusOr<List<SchemaAlternative>> ValueAlgebra::ForbiddenObjects(const ObjectSchema& object) {
  if (!object.unoffered.empty()) {
    return absl::UnimplementedError(
        fmt::format("it excludes objects by {}", object.unoffered[0].keyword));
  }
  List<SchemaAlternative> forbidden;
  const auto add = [&]() -> ObjectSchema& {
    return forbidden.emplace_back(SchemaAlternative{.type = JsonType::kObject}).object;
  };
  if (object.min_properties > 0) add().max_properties = object.min_properties - 1;
  if (object.max_properties != kUnbounded) add().min_properties = object.max_properties + 1;
  List<std::string_view> declared;
  for (const PropertySchema& property : object.properties) {
    declared.push_back(property.name);
    if (property.is_required) add().Constrain(property.name, NothingSet());
    for (const SchemaSet& opposite : Opposites(property.schemas)) {
      ObjectSchema& other = add();
      other.Require(property.name);
      other.Constrain(property.name, opposite);
      other.properties.back().has_place = property.has_place;
    }
  }
  for (const NameClass& other : object.others) {
    if (other.schemas.empty()) continue;
    absl::StatusOr<ByteDfa> these = TheseStrings(declared);
    if (!these.ok()) return these.status();
    const absl::StatusOr<SharedDfa> names =
        source_.dfas().Subtract(other.names, source_.dfas().Share(*std::move(these)));
    if (!names.ok()) return names.status();
    if ((*names)->IsEmpty()) continue;
    for (const SchemaSet& opposite : Opposites(other.schemas)) {
      add().needed.push_back({.names = *names, .schemas = opposite});
    }
  }
  for (const NeededMember& needed : object.needed) {
    const List<SchemaSet> opposites = Opposites(needed.schemas);
    if (opposites.size() > 1) {
      return absl::UnimplementedError("it excludes objects by a member that others exclude");
    }
    const SchemaSet inside = opposites.empty() ? NothingSet() : opposites[0];
    const absl::Status status =
        SplitNames(needed.names, inside, {}, &source_.dfas(), &add().others);
    if (!status.ok()) return status;
  }
  return forbidden;
}

absl::StatusOr<bool> ValueAlgebra::AreDisjoint(const AllowedValues& a, const AllowedValues& b) {
  const absl::StatusOr<AllowedValues> both = And(a, b);
  if (!both.ok()) return both.status();
  for (const SchemaAlternative& alternative : both->alternatives) {
    const absl::StatusOr<bool> is_empty = IsEmpty(alternative);
    if (!is_empty.ok()) return is_empty.status();
    if (!*is_empty) return false;
  }
  return true;
}

absl::StatusOr<bool> ValueAlgebra::AllowsNothing(const SchemaSet& set) {
  if (IsNothing(set)) return true;
  if (set.empty() || depth_ == kEmptyDepthMax) return false;
  if (!Budget::Spend(kLookUnits)) return Budget::Refusal();
  if (nothing_.contains(set)) return true;
  // A look from less deep looks further. While this set is looked at, it may allow something.
  const auto [known, is_new] = something_.try_emplace(set, depth_);
  if (!is_new && known->second <= depth_) return false;
  known->second = depth_;
  // The evaluator runs inside: it may ask for the emptiness of others.
  ++depth_;
  const absl::Cleanup leave = [&] { --depth_; };
  const absl::StatusOr<ValueSource::Shared> allowed = source_.Of(set);
  if (!allowed.ok()) {
    // A schema that is being evaluated may allow something, and so may one that is refused: the
    // refusal comes where the set is built.
    const absl::StatusCode code = allowed.status().code();
    const bool is_unknown =
        code == absl::StatusCode::kAborted || code == absl::StatusCode::kUnimplemented;
    return is_unknown ? absl::StatusOr<bool>(false) : allowed.status();
  }
  for (const SchemaAlternative& alternative : (*allowed)->alternatives) {
    const absl::StatusOr<bool> is_empty = IsEmpty(alternative);
    if (!is_empty.ok() || !*is_empty) return is_empty;
  }
  nothing_.insert(set);
  return true;
}

absl::StatusOr<bool> ValueAlgebra::IsEmpty(const SchemaAlternative& alternative) {
  if (alternative.constant != nullptr) return false;
  if (IsPlainlyEmpty(alternative, &source_.dfas())) return true;
  const Budget::Level level;
  if (!level.ok()) return Budget::Refusal();
  if (alternative.type == JsonType::kArray) {
    const ArraySchema& array = alternative.array;
    const size_t num_items =
        std::min<size_t>({array.min_items, array.prefix.size() + 1, kEmptyItemsMax});
    for (size_t i = 0; i < num_items; ++i) {
      const absl::StatusOr<bool> is_nothing = AllowsNothing(array.Item(i));
      if (!is_nothing.ok() || *is_nothing) return is_nothing;
    }
  }
  if (alternative.type == JsonType::kObject) {
    for (const PropertySchema& property : alternative.object.properties) {
      if (!property.is_required) continue;
      const absl::StatusOr<bool> is_nothing = AllowsNothing(property.schemas);
      if (!is_nothing.ok() || *is_nothing) return is_nothing;
    }
  }
  return false;
}

}  // namespace specd::grammar
