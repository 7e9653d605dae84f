#include "daemon/trace/trace_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "daemon/trace/trace_fields.h"
#include "ipc/base/msgpack_codec.h"

namespace specd {
namespace {

// The largest value of each enumeration of a record.
template <class E>
constexpr E kLast = {};
template <>
constexpr VerifyMethod kLast<VerifyMethod> = kLastMethod;
template <>
constexpr FinishReason kLast<FinishReason> = FinishReason::kError;
template <>
constexpr RoundStatus kLast<RoundStatus> = RoundStatus::kNotReady;
template <>
constexpr Refusal kLast<Refusal> = static_cast<Refusal>(kRefusalMax);
template <>
constexpr OutcomeStatus kLast<OutcomeStatus> = OutcomeStatus::kMixedKinds;
template <>
constexpr RowFault kLast<RowFault> = RowFault::kChanged;
template <>
constexpr DType kLast<DType> = DType::kFloat16;
template <>
constexpr RowKind kLast<RowKind> = RowKind::kFinalProbabilities;
template <>
constexpr MemorySpace kLast<MemorySpace> = MemorySpace::kOtherDevice;
template <>
constexpr TraceLevel kLast<TraceLevel> = TraceLevel::kRows;
template <>
constexpr NoRows kLast<NoRows> = NoRows::kUnread;
template <>
constexpr TraceTensor kLast<TraceTensor> = TraceTensor::kGrammarMask;
template <>
constexpr DraftKind kLast<DraftKind> = DraftKind::kSampledRest;
template <>
constexpr ScoreMode kLast<ScoreMode> = ScoreMode::kUnfilteredLogprob;
template <>
constexpr Rng kLast<Rng> = Rng::kSglang;
template <>
constexpr Purpose kLast<Purpose> = Purpose::kTree;
template <>
constexpr ZeroStep kLast<ZeroStep> = ZeroStep::kUnderflow;

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};

template <class T>
concept Fielded = requires {
  VisitFields(RecordType<T>{}, [](const char*, auto) {});
};

// Equal in every bit, so that -0 and NaN are written.
template <class T>
bool IsDefault(const T& value, const T& other) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<uint32_t>(value) == std::bit_cast<uint32_t>(other);
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<uint64_t>(value) == std::bit_cast<uint64_t>(other);
  } else if constexpr (IsVector<T>::value) {
    return value.empty();
  } else if constexpr (Fielded<T>) {
    bool equal = true;
    VisitFields(RecordType<T>{}, [&](const char*, auto member) {
      equal = equal && IsDefault(value.*member, other.*member);
    });
    return equal;
  } else {
    return value == other;
  }
}

class Encoder {
 public:
  explicit Encoder(std::string* out) : sink_(out), packer_(sink_) {}

  template <class T>
  void Put(const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      packer_.pack(value);
    } else if constexpr (std::is_enum_v<T>) {
      packer_.pack(static_cast<uint64_t>(value));
    } else if constexpr (std::is_same_v<T, float>) {
      PutBits(0xca, std::bit_cast<uint32_t>(value));
    } else if constexpr (std::is_same_v<T, double>) {
      PutBits(0xcb, std::bit_cast<uint64_t>(value));
    } else if constexpr (std::is_same_v<T, std::pair<std::string, double>>) {
      packer_.pack_array(2);
      Put(value.first);
      Put(value.second);
    } else if constexpr (IsVector<T>::value) {
      packer_.pack_array(static_cast<uint32_t>(value.size()));
      for (const auto& element : value) Put(element);
    } else if constexpr (Fielded<T>) {
      PutRecord(value);
    } else {
      packer_.pack(value);
    }
  }

 private:
  template <class T>
  void PutRecord(const T& record) {
    static_assert(NumListed<T>() == kNumFields<T>, "trace_fields.h lists every member");
    static const T kDefault;
    uint32_t num_fields = 0;
    VisitFields(RecordType<T>{}, [&](const char*, auto member) {
      num_fields += IsDefault(record.*member, kDefault.*member) ? 0 : 1;
    });
    packer_.pack_map(num_fields);
    VisitFields(RecordType<T>{}, [&](const char* name, auto member) {
      if (IsDefault(record.*member, kDefault.*member)) return;
      packer_.pack(name);
      Put(record.*member);
    });
  }

  template <class Bits>
  void PutBits(int tag, Bits bits) {
    char bytes[1 + sizeof(Bits)] = {static_cast<char>(tag)};
    for (size_t i = 0; i < sizeof(Bits); ++i) {
      bytes[1 + i] = static_cast<char>(bits >> (8 * (sizeof(Bits) - 1 - i)));
    }
    sink_.write(bytes, sizeof(bytes));
  }

  StringSink sink_;
  msgpack::packer<StringSink> packer_;
};

class Decoder {
 public:
  template <class T>
  void Get(const msgpack::object& from, T* value) {
    if constexpr (std::is_same_v<T, bool>) {
      if (Is(from, msgpack::type::BOOLEAN, "true or false")) *value = from.via.boolean;
    } else if constexpr (std::is_enum_v<T>) {
      uint64_t number = 0;
      GetInteger(from, uint64_t{0}, static_cast<uint64_t>(kLast<T>), &number);
      *value = static_cast<T>(number);
    } else if constexpr (std::is_same_v<T, float>) {
      if (Is(from, msgpack::type::FLOAT32, "a float32")) *value = static_cast<float>(from.via.f64);
    } else if constexpr (std::is_same_v<T, double>) {
      if (Is(from, msgpack::type::FLOAT64, "a float64")) *value = from.via.f64;
    } else if constexpr (std::is_integral_v<T>) {
      GetInteger(from, std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!Is(from, msgpack::type::STR, "a string") || !Spend(from.via.str.size)) return;
      value->assign(from.via.str.ptr, from.via.str.size);
    } else if constexpr (std::is_same_v<T, std::pair<std::string, double>>) {
      if (!Is(from, msgpack::type::ARRAY, "a name and a number")) return;
      if (from.via.array.size != 2) return Fail("is not a name and a number");
      Get(from.via.array.ptr[0], &value->first);
      Get(from.via.array.ptr[1], &value->second);
    } else if constexpr (IsVector<T>::value) {
      if (!Is(from, msgpack::type::ARRAY, "a list")) return;
      if (!Spend(uint64_t{from.via.array.size} * sizeof(typename T::value_type))) return;
      value->resize(from.via.array.size);
      for (uint32_t i = 0; i < from.via.array.size && status_.ok(); ++i) {
        typename T::value_type element{};
        Get(from.via.array.ptr[i], &element);
        (*value)[i] = std::move(element);
      }
    } else {
      GetRecord(from, value);
    }
  }

  const absl::Status& status() const { return status_; }

 private:
  template <class T>
  void GetRecord(const msgpack::object& from, T* record) {
    if (!Is(from, msgpack::type::MAP, "a map")) return;
    for (uint32_t i = 0; i < from.via.map.size && status_.ok(); ++i) {
      const msgpack::object& key = from.via.map.ptr[i].key;
      if (key.type != msgpack::type::STR) return Fail("has a key that is no string");
      const std::string_view name(key.via.str.ptr, key.via.str.size);
      bool is_known = false;
      const std::string outer = std::exchange(where_, std::string(name));
      VisitFields(RecordType<T>{}, [&](const char* known, auto member) {
        if (is_known || name != known) return;
        is_known = true;
        Get(from.via.map.ptr[i].val, &(record->*member));
      });
      if (!is_known) Fail("is no member of this version");
      where_ = outer;
    }
  }

  template <class T>
  void GetInteger(const msgpack::object& from, T min, T max, T* value) {
    const bool is_negative = from.type == msgpack::type::NEGATIVE_INTEGER;
    if (!is_negative && !Is(from, msgpack::type::POSITIVE_INTEGER, "an integer")) return;
    if (is_negative ? std::cmp_less(from.via.i64, min) : std::cmp_greater(from.via.u64, max)) {
      return Fail(fmt::format("is outside {} .. {}", min, max));
    }
    *value = is_negative ? static_cast<T>(from.via.i64) : static_cast<T>(from.via.u64);
  }

  bool Is(const msgpack::object& from, msgpack::type::object_type type, std::string_view wanted) {
    if (from.type == type) return status_.ok();
    Fail(fmt::format("is not {}", wanted));
    return false;
  }

  // An empty map of a byte becomes a record of hundreds.
  bool Spend(uint64_t bytes) {
    if (bytes <= budget_bytes_) {
      budget_bytes_ -= bytes;
      return true;
    }
    Fail(fmt::format("makes the record larger than {} MiB in memory", kDecodedBytesMax >> 20));
    return false;
  }

  void Fail(std::string_view text) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(fmt::format("trace record: \"{}\" {}", where_, text));
  }

  // Honest lists grow 4 times at most: an id of one byte has four in memory.
  static constexpr uint64_t kDecodedBytesMax = 8 * uint64_t{kTraceRecordBytesMax};

  uint64_t budget_bytes_ = kDecodedBytesMax;
  std::string where_ = "record";
  absl::Status status_;
};

// A round holds tasks, their places, and the edits of a place. No list is longer than the ids of an
// opening, and none has more elements than the record has bytes.
constexpr size_t kListMax = size_t{1} << 20;
constexpr size_t kDepthMax = 8;

}  // namespace

template <class Record>
void EncodeTrace(const Record& record, std::string* out) {
  Encoder(out).Put(record);
}

template <class Record>
absl::StatusOr<Record> DecodeTrace(std::string_view bytes) {
  if (bytes.size() > kTraceRecordBytesMax) {
    return absl::InvalidArgumentError(
        fmt::format("trace record: {} bytes; at most {} are read, because decoding may take 24 "
                    "times as much memory",
                    bytes.size(), kTraceRecordBytesMax));
  }
  msgpack::object_handle handle;
  const MapLimits limits = {.array_max = std::min(bytes.size(), kListMax), .depth_max = kDepthMax};
  if (absl::Status status = ParseMap(bytes, &handle, limits); !status.ok()) return status;
  Record record;
  Decoder decoder;
  decoder.Get(handle.get(), &record);
  if (!decoder.status().ok()) return decoder.status();
  return record;
}

#define SPECD_TRACE_RECORD(Record)                        \
  template void EncodeTrace(const Record&, std::string*); \
  template absl::StatusOr<Record> DecodeTrace(std::string_view);
SPECD_TRACE_RECORD(TraceInfo)
SPECD_TRACE_RECORD(TraceOpening)
SPECD_TRACE_RECORD(TraceEnd)
SPECD_TRACE_RECORD(TraceRound)
SPECD_TRACE_RECORD(TraceDrops)
#undef SPECD_TRACE_RECORD

}  // namespace specd
