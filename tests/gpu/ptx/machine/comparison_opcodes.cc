// PTX ISA, "Comparison and Selection Instructions", and the predicates of "Logic and Shift
// Instructions".
#include "tests/gpu/ptx/machine/lane_functions.h"

namespace specd::ptx {

namespace {

// "setp" of whole numbers
template <typename Value>
void AddWholeComparisons(OpcodeTable* table, const std::string& type) {
  const auto add = [&]<typename Function>(const char* name, Function function) {
    AddComparison<Value>(table, std::string("setp.") + name + "." + type, function);
  };
  add("eq", [](Value a, Value b) { return a == b; });
  add("ne", [](Value a, Value b) { return a != b; });
  if (type[0] == 'b') return;  // bits have no order
  add("lt", [](Value a, Value b) { return a < b; });
  add("le", [](Value a, Value b) { return a <= b; });
  add("gt", [](Value a, Value b) { return a > b; });
  add("ge", [](Value a, Value b) { return a >= b; });
  if (type[0] != 'u') return;
  // "lo", "ls", "hi", "hs": the same of unsigned numbers, by other names.
  add("lo", [](Value a, Value b) { return a < b; });
  add("ls", [](Value a, Value b) { return a <= b; });
  add("hi", [](Value a, Value b) { return a > b; });
  add("hs", [](Value a, Value b) { return a >= b; });
}

// "setp" of floats. If an operand is NaN, a comparison is false, and one with a u at its end is
// true.
template <typename Value>
void AddFloatComparisons(OpcodeTable* table, const std::string& type) {
  const auto add = [&]<typename Function>(const char* name, Function function) {
    AddComparison<Value>(table, std::string("setp.") + name + "." + type, function);
  };
  add("eq", [](Value a, Value b) { return a == b; });
  add("ne", [](Value a, Value b) { return a < b || a > b; });
  add("lt", [](Value a, Value b) { return a < b; });
  add("le", [](Value a, Value b) { return a <= b; });
  add("gt", [](Value a, Value b) { return a > b; });
  add("ge", [](Value a, Value b) { return a >= b; });
  add("equ", [](Value a, Value b) { return !(a < b || a > b); });
  add("neu", [](Value a, Value b) { return !(a == b); });
  add("ltu", [](Value a, Value b) { return !(a >= b); });
  add("leu", [](Value a, Value b) { return !(a > b); });
  add("gtu", [](Value a, Value b) { return !(a <= b); });
  add("geu", [](Value a, Value b) { return !(a < b); });
  add("num", [](Value a, Value b) { return a == a && b == b; });
  add("nan", [](Value a, Value b) { return a != a || b != b; });
}

// "selp": a where the predicate holds, else b.
template <typename Slot>
void Select(Warp&, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  const auto* const a = frame.Source<Slot>(instruction.sources[0]);
  const auto* const b = frame.Source<Slot>(instruction.sources[1]);
  const uint32_t chooses_a = frame.Predicate(instruction.sources[2]);
  Slot values[kLanes];
  for (int i = 0; i < kLanes; ++i) values[i] = (chooses_a >> i & 1) != 0 ? a[i] : b[i];
  WriteLanes(frame, instruction.result, values, lanes);
}

struct Both {
  uint32_t operator()(uint32_t a, uint32_t b) const { return a & b; }
};
struct Either {
  uint32_t operator()(uint32_t a, uint32_t b) const { return a | b; }
};
struct OneAlone {
  uint32_t operator()(uint32_t a, uint32_t b) const { return a ^ b; }
};
template <typename Function>
void Combine(Warp&, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  const uint32_t value =
      Function{}(frame.Predicate(instruction.sources[0]), frame.Predicate(instruction.sources[1]));
  frame.SetPredicate(instruction.result, lanes, value);
}
void Copy(Warp&, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  frame.SetPredicate(instruction.result, lanes, frame.Predicate(instruction.sources[0]));
}
void Invert(Warp&, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  frame.SetPredicate(instruction.result, lanes, ~frame.Predicate(instruction.sources[0]));
}

}  // namespace

void AddComparisonOpcodes(OpcodeTable* table) {
  AddWholeComparisons<uint16_t>(table, "b16");
  AddWholeComparisons<int16_t>(table, "s16");
  AddWholeComparisons<uint16_t>(table, "u16");
  AddWholeComparisons<uint32_t>(table, "b32");
  AddWholeComparisons<int32_t>(table, "s32");
  AddWholeComparisons<uint32_t>(table, "u32");
  AddWholeComparisons<uint64_t>(table, "b64");
  AddWholeComparisons<int64_t>(table, "s64");
  AddWholeComparisons<uint64_t>(table, "u64");
  AddFloatComparisons<float>(table, "f32");
  AddFloatComparisons<double>(table, "f64");
  constexpr int kPredicate = kPredicateBytes;
  for (const char* const type : {"b16", "u16", "s16"}) {
    (*table)[std::string("selp.") + type] = {&Select<uint32_t>, 2, {2, 2, kPredicate}};
  }
  for (const char* const type : {"b32", "u32", "s32", "f32"}) {
    (*table)[std::string("selp.") + type] = {&Select<uint32_t>, 4, {4, 4, kPredicate}};
  }
  for (const char* const type : {"b64", "u64", "s64", "f64"}) {
    (*table)[std::string("selp.") + type] = {&Select<uint64_t>, 8, {8, 8, kPredicate}};
  }
  (*table)["and.pred"] = {&Combine<Both>, kPredicate, {kPredicate, kPredicate}};
  (*table)["or.pred"] = {&Combine<Either>, kPredicate, {kPredicate, kPredicate}};
  (*table)["xor.pred"] = {&Combine<OneAlone>, kPredicate, {kPredicate, kPredicate}};
  (*table)["not.pred"] = {&Invert, kPredicate, {kPredicate}};
  (*table)["mov.pred"] = {&Copy, kPredicate, {kPredicate}};
}

}  // namespace specd::ptx
