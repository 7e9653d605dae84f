#include "daemon/metrics/metric_table.h"

#include "daemon/metrics/meters.h"
#include "ipc/base/error.h"
#include "ipc/segment/wire_values.h"

namespace specd {
namespace {

template <class Type>
struct TypeFacts;

template <>
struct TypeFacts<Counter> {
  static constexpr CounterKind kKind = CounterKind::kCounter;
};
template <>
struct TypeFacts<Gauge> {
  static constexpr CounterKind kKind = CounterKind::kGauge;
};
template <>
struct TypeFacts<Info> {
  static constexpr CounterKind kKind = CounterKind::kInfo;
};
template <>
struct TypeFacts<Times> {
  static constexpr CounterKind kKind = CounterKind::kTimes;
};
template <>
struct TypeFacts<PerPosition> {
  static constexpr CounterKind kKind = CounterKind::kCounter;
  static constexpr std::string_view kLabel = "position";
  static std::string Text(size_t index) { return std::to_string(index); }
};
template <>
struct TypeFacts<PerRefusal> {
  static constexpr CounterKind kKind = CounterKind::kCounter;
  static constexpr std::string_view kLabel = "reason";
  static std::string Text(size_t index) {
    return index == 0 ? "" : DetailName(static_cast<Refusal>(index));
  }
};
template <>
struct TypeFacts<PerReason> {
  static constexpr CounterKind kKind = CounterKind::kCounter;
  static constexpr std::string_view kLabel = "reason";
  static std::string Text(size_t index) {
    constexpr const char* kNames[PerReason::size()] = {"", "stop", "length", "abort", "error"};
    return kNames[index];
  }
};
template <>
struct TypeFacts<PerError> {
  static constexpr CounterKind kKind = CounterKind::kCounter;
  static constexpr std::string_view kLabel = "code";
  static std::string Text(size_t index) {
    return index == 0 ? "" : ErrorCodeName(-static_cast<int>(index));
  }
};

template <class Type>
constexpr MetricRow MakeRow(MeterGroup group, std::string_view name, std::string_view labels,
                            std::string_view meaning, size_t offset_bytes) {
  MetricRow row = {group,        name, labels,  meaning, TypeFacts<Type>::kKind,
                   offset_bytes, "",   nullptr, 1};
  if constexpr (requires { TypeFacts<Type>::kLabel; }) {
    row.index_label = TypeFacts<Type>::kLabel;
    row.index_text = &TypeFacts<Type>::Text;
    row.num_series = Type::size();
  }
  return row;
}

#define SPECD_ROW(Group, Struct, member, Type, name, labels, meaning) \
  MakeRow<Type>(MeterGroup::Group, name, labels, meaning, offsetof(Struct, member)),
#define SPECD_ROUND_METRIC(...) SPECD_ROW(kRound, RoundMeters, __VA_ARGS__)
#define SPECD_VERIFY_METRIC(...) SPECD_ROW(kVerify, VerifyMeters, __VA_ARGS__)
#define SPECD_COMPILE_METRIC(...) SPECD_ROW(kCompile, CompileMeters, __VA_ARGS__)
#define SPECD_CONTROL_METRIC(...) SPECD_ROW(kControl, ControlMeters, __VA_ARGS__)
#define SPECD_PUBLISHER_METRIC(...) SPECD_ROW(kPublisher, PublisherMeters, __VA_ARGS__)
#define SPECD_TEXT_METRIC(...) SPECD_ROW(kText, TextMeters, __VA_ARGS__)

constexpr MetricRow kRows[] = {
#include "daemon/metrics/metric_list.inc"
};

}  // namespace

std::span<const MetricRow> MetricTable() { return kRows; }

}  // namespace specd
