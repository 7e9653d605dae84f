#include "tests/fuzz/judge/drawn_schema.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/fuzz/judge/drawn_pattern.h"

namespace specd::grammar {
namespace {

constexpr const char* kNames[] = {"k0", "k1", "k2", "k3", "a", "kind"};
constexpr const char* kTypes[] = {"object",  "array",   "string", "number",
                                  "integer", "boolean", "null"};
constexpr int kDepthMax = 6;

JsonValue Boolean(bool value) { return {.type = JsonType::kBoolean, .boolean = value}; }
JsonValue Number(std::string text) { return {.type = JsonType::kNumber, .text = std::move(text)}; }
JsonValue String(std::string text) { return {.type = JsonType::kString, .text = std::move(text)}; }
JsonValue Array() { return {.type = JsonType::kArray}; }
JsonValue Object() { return {.type = JsonType::kObject}; }

// A second member of one name is an error, so the first stays.
void Set(JsonValue* object, std::string name, JsonValue value) {
  if (object->Find(name) != nullptr) return;
  object->names.push_back(std::move(name));
  object->values.push_back(std::move(value));
}

class SchemaDrawer {
 public:
  explicit SchemaDrawer(Dice* dice) : dice_(*dice) {
    num_definitions_ = dice_.Below(4);
    // Small schemas are quick, and many of them say more than few large ones.
    parts_ = dice_.OneIn(100) ? 50 : 2 + dice_.Below(dice_.OneIn(8) ? 20 : 8);
  }

  JsonValue Root() {
    JsonValue root = Schema(0);
    if (!root.IsObject()) return root;
    if (num_definitions_ == 0) return root;
    JsonValue definitions = Object();
    for (size_t i = 0; i < num_definitions_; ++i) {
      // Something is left for each.
      parts_ = std::max(parts_, size_t{3});
      first_in_place_ = i + 1;
      is_guarded_ = false;
      Set(&definitions, "d" + std::to_string(i), Schema(1));
    }
    Set(&root, "$defs", std::move(definitions));
    return root;
  }

 private:
  using Draw = void (SchemaDrawer::*)(JsonValue*, int);

  JsonValue Schema(int depth) {
    if (parts_ > 0) --parts_;
    if (depth > 0 && (parts_ == 0 || depth >= kDepthMax || dice_.OneIn(5))) return Leaf();
    if (dice_.OneIn(3)) return Record(depth);
    JsonValue schema = Object();
    const size_t num_groups = 1 + dice_.Below(3);
    for (size_t i = 0; i < num_groups; ++i) {
      constexpr Draw kGroups[] = {
          &SchemaDrawer::Type,       &SchemaDrawer::Type,     &SchemaDrawer::Branches,
          &SchemaDrawer::Branches,   &SchemaDrawer::Branches, &SchemaDrawer::Condition,
          &SchemaDrawer::Dependents, &SchemaDrawer::Members,  &SchemaDrawer::Members,
          &SchemaDrawer::Names,      &SchemaDrawer::Others,   &SchemaDrawer::Items,
          &SchemaDrawer::Contains,   &SchemaDrawer::Values,   &SchemaDrawer::Text,
          &SchemaDrawer::Bounds,     &SchemaDrawer::Counts,   &SchemaDrawer::Reference,
      };
      (this->*dice_.Pick(kGroups))(&schema, depth);
    }
    return schema;
  }

  // A schema of a property or of an item.
  JsonValue Part(int depth) {
    const bool was_guarded = is_guarded_;
    is_guarded_ = true;
    JsonValue part = depth <= kDepthMax && parts_ > 0 ? Schema(depth) : Leaf();
    is_guarded_ = was_guarded;
    return part;
  }

  JsonValue Leaf() {
    JsonValue leaf = Object();
    switch (dice_.Below(10)) {
      case 0:
        return Boolean(!dice_.OneIn(4));
      case 1:
        return leaf;
      case 2:
        Values(&leaf, 0);
        return leaf;
      case 3:
        Text(&leaf, 0);
        return leaf;
      case 4:
      case 5:
        Type(&leaf, 0);
        return leaf;
      default:
        Reference(&leaf, 0);
        return leaf;
    }
  }

  // What people write: an object with properties, some of them required.
  JsonValue Record(int depth) {
    JsonValue record = Object();
    if (!dice_.OneIn(4)) Set(&record, "type", String("object"));
    Members(&record, depth);
    if (dice_.OneIn(2)) Set(&record, "required", SomeNames());
    if (dice_.OneIn(4)) Set(&record, "additionalProperties", Boolean(false));
    if (dice_.OneIn(4)) Branches(&record, depth);
    return record;
  }

  void Type(JsonValue* schema, int) {
    if (!dice_.OneIn(4)) return Set(schema, "type", String(dice_.Pick(kTypes)));
    JsonValue types = Array();
    for (const char* type : kTypes) {
      if (dice_.OneIn(3)) types.values.push_back(String(type));
    }
    Set(schema, "type", std::move(types));
  }

  // A reference to what is around it, without a property or an item between, is refused. Most
  // references in place therefore go to later definitions.
  void Reference(JsonValue* schema, int depth) {
    if (!is_guarded_ && !dice_.OneIn(20)) {
      if (first_in_place_ >= num_definitions_) return Type(schema, depth);
      const size_t chosen = first_in_place_ + dice_.Below(num_definitions_ - first_in_place_);
      return Set(schema, "$ref", String("#/$defs/d" + std::to_string(chosen)));
    }
    std::string target = "#";
    if (num_definitions_ > 0 && !dice_.OneIn(3)) {
      target = "#/$defs/d" + std::to_string(dice_.Below(num_definitions_));
    } else if (dice_.OneIn(40)) {
      target = std::string("#/properties/") + dice_.Pick(kNames);
    }
    Set(schema, "$ref", String(std::move(target)));
  }

  void Branches(JsonValue* schema, int depth) {
    constexpr const char* kLists[] = {"oneOf", "oneOf", "anyOf", "anyOf", "allOf"};
    if (dice_.OneIn(8)) return Set(schema, "not", Schema(depth + 1));
    JsonValue branches = Array();
    const size_t num_branches = dice_.OneIn(12) ? dice_.Below(13) : 1 + dice_.Below(4);
    for (size_t i = 0; i < num_branches; ++i) {
      branches.values.push_back(dice_.OneIn(2) ? Variant(depth + 1) : Schema(depth + 1));
    }
    Set(schema, dice_.Pick(kLists), std::move(branches));
  }

  // One way of a union: it requires a name, and says something of it.
  JsonValue Variant(int depth) {
    const std::string name = dice_.Pick(kNames);
    JsonValue variant = Object();
    JsonValue required = Array();
    required.values.push_back(String(name));
    if (!dice_.OneIn(4)) Set(&variant, "required", std::move(required));
    if (dice_.OneIn(4)) return variant;
    JsonValue properties = Object();
    if (parts_ > 0) --parts_;
    Set(&properties, name, Part(depth + 1));
    Set(&variant, "properties", std::move(properties));
    return variant;
  }

  void Condition(JsonValue* schema, int depth) {
    Set(schema, "if", dice_.OneIn(2) ? Variant(depth + 1) : Schema(depth + 1));
    if (!dice_.OneIn(4)) Set(schema, "then", Schema(depth + 1));
    if (dice_.OneIn(2)) Set(schema, "else", Schema(depth + 1));
  }

  void Dependents(JsonValue* schema, int depth) {
    JsonValue dependents = Object();
    const bool is_list = dice_.OneIn(2);
    for (size_t i = 0; i <= dice_.Below(2); ++i) {
      Set(&dependents, dice_.Pick(kNames), is_list ? SomeNames() : Schema(depth + 1));
    }
    Set(schema, is_list ? "dependentRequired" : "dependentSchemas", std::move(dependents));
  }

  void Members(JsonValue* schema, int depth) {
    JsonValue properties = Object();
    const size_t num_properties = dice_.OneIn(40) ? dice_.Below(40) : 1 + dice_.Below(3);
    for (size_t i = 0; i < num_properties; ++i) {
      const std::string name =
          num_properties > 4 ? "p" + std::to_string(i) : std::string(dice_.Pick(kNames));
      Set(&properties, name, Part(depth + 1));
    }
    Set(schema, "properties", std::move(properties));
    if (dice_.OneIn(3)) Set(schema, "required", SomeNames());
  }

  void Names(JsonValue* schema, int depth) {
    if (dice_.OneIn(3)) return Set(schema, "propertyNames", Part(depth + 1));
    JsonValue patterns = Object();
    for (size_t i = 0; i <= dice_.Below(3); ++i) {
      Set(&patterns, DrawShortPattern(&dice_), Part(depth + 1));
    }
    Set(schema, "patternProperties", std::move(patterns));
  }

  void Others(JsonValue* schema, int depth) {
    constexpr const char* kOthers[] = {"additionalProperties", "additionalProperties",
                                       "unevaluatedProperties", "unevaluatedItems"};
    Set(schema, dice_.Pick(kOthers), dice_.OneIn(2) ? Boolean(false) : Part(depth + 1));
  }

  void Items(JsonValue* schema, int depth) {
    if (!dice_.OneIn(3)) Set(schema, "items", Part(depth + 1));
    if (dice_.OneIn(3)) {
      JsonValue prefix = Array();
      for (size_t i = 0; i <= dice_.Below(3); ++i) prefix.values.push_back(Part(depth + 1));
      Set(schema, "prefixItems", std::move(prefix));
    }
    if (dice_.OneIn(2)) Counts(schema, depth);
    if (dice_.OneIn(12)) Set(schema, "uniqueItems", Boolean(true));
  }

  void Contains(JsonValue* schema, int depth) {
    Set(schema, "contains", Part(depth + 1));
    if (dice_.OneIn(2)) Set(schema, "minContains", Count());
    if (dice_.OneIn(3)) Set(schema, "maxContains", Count());
  }

  void Values(JsonValue* schema, int) {
    if (dice_.OneIn(2)) return Set(schema, "const", Constant(0));
    JsonValue list = Array();
    const size_t num_values = dice_.OneIn(50) ? 300 : 1 + dice_.Below(4);
    for (size_t i = 0; i < num_values; ++i) {
      list.values.push_back(num_values > 4 ? String("v" + std::to_string(i * 7919)) : Constant(0));
    }
    Set(schema, "enum", std::move(list));
  }

  JsonValue Constant(int depth) {
    switch (dice_.Below(depth < 2 ? 7 : 5)) {
      case 0:
        return {};
      case 1:
        return Boolean(dice_.OneIn(2));
      case 2:
        return Number(std::to_string(dice_.Below(5)));
      case 3:
      case 4:
        return String(dice_.Pick(kNames));
      case 5: {
        JsonValue array = Array();
        for (size_t i = dice_.Below(3); i > 0; --i) array.values.push_back(Constant(depth + 1));
        return array;
      }
      default: {
        JsonValue object = Object();
        for (size_t i = dice_.Below(3); i > 0; --i) {
          Set(&object, dice_.Pick(kNames), Constant(depth + 1));
        }
        return object;
      }
    }
  }

  void Text(JsonValue* schema, int) {
    constexpr const char* kFormats[] = {"date-time", "date",     "time",  "duration",
                                        "email",     "hostname", "ipv4",  "ipv6",
                                        "uri",       "uuid",     "regex", "unknown"};
    if (!dice_.OneIn(4)) Set(schema, "type", String("string"));
    switch (dice_.Below(4)) {
      case 0:
        return Set(schema, "pattern", String(DrawShortPattern(&dice_)));
      case 1:
        return Set(schema, "format", String(dice_.Pick(kFormats)));
      case 2:
        Set(schema, "minLength", Count());
        if (dice_.OneIn(4)) Set(schema, "pattern", String(DrawShortPattern(&dice_)));
        return;
      default:
        Set(schema, "maxLength", Count());
        if (dice_.OneIn(4)) Set(schema, "minLength", Count());
    }
  }

  void Bounds(JsonValue* schema, int) {
    constexpr const char* kBounds[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
                                       "multipleOf"};
    constexpr const char* kNumbers[] = {
        "0", "1",    "3",     "10",    "-5",     "0.5",    "0.01",       "1e10",
        "7", "1025", "65536", "1e300", "1e-300", "999999", "2147483647", "-9223372036854775808"};
    for (size_t i = 0; i <= dice_.Below(3); ++i) {
      Set(schema, dice_.Pick(kBounds), Number(dice_.Pick(kNumbers)));
    }
  }

  void Counts(JsonValue* schema, int) {
    constexpr const char* kCounts[] = {"minItems", "maxItems", "minProperties", "maxProperties"};
    for (size_t i = 0; i <= dice_.Below(2); ++i) Set(schema, dice_.Pick(kCounts), Count());
  }

  JsonValue Count() {
    constexpr const char* kLarge[] = {"17",    "100",        "1000",    "5000",
                                      "65535", "65536",      "1000000", "2147483647",
                                      "50000", "4294967296", "1e300",   "20"};
    return Number(dice_.OneIn(40) ? dice_.Pick(kLarge) : std::to_string(dice_.Below(5)));
  }

  JsonValue SomeNames() {
    JsonValue list = Array();
    for (const char* name : kNames) {
      if (dice_.OneIn(4)) list.values.push_back(String(name));
    }
    return list;
  }

  Dice& dice_;
  size_t num_definitions_;
  size_t parts_;               // subschemas that are left to draw
  size_t first_in_place_ = 0;  // the definitions from here on are not around the present one
  bool is_guarded_ = false;    // a property or an item lies around the present subschema
};

}  // namespace

JsonValue DrawSchema(Dice* dice) { return SchemaDrawer(dice).Root(); }

}  // namespace specd::grammar
