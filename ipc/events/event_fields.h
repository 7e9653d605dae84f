// These functions write and read the fields that events of several kinds share, for the codecs of
// this folder alone.
//
// Pure functions, safe from any thread.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "ipc/base/msgpack_codec.h"
#include "ipc/include/specd/specd.h"
#include "kernels/core/check.h"
#include "kernels/core/types.h"

namespace specd {

inline constexpr uint32_t kEventVersion = 1;

// The bounds of specd/specd.h. The bytes of a message are a second bound of its contents.
inline constexpr size_t kRequestIdBytesMax = 128;
inline constexpr size_t kEventsMax = 65536;
inline constexpr std::string_view kCumulativeLogprob = "cumulative_logprob";
// The index is SPECD_FINISH_*. A stream that has not finished sends no reason.
inline constexpr std::array<std::string_view, 5> kFinishReasons = {"none", "stop", "length",
                                                                   "abort", "error"};
static_assert(SPECD_FINISH_STOP == 1 && SPECD_FINISH_LENGTH == 2 && SPECD_FINISH_ABORT == 3 &&
              SPECD_FINISH_ERROR == 4);

template <size_t kSize>
void ReadName(MapReader* reader, std::string_view key,
              const std::array<std::string_view, kSize>& names, size_t first, uint32_t* out) {
  std::string name;
  reader->Read(key, &name, 16);
  if (!reader->ok()) return;
  for (size_t i = first; i < kSize; ++i) {
    if (names[i] == name) {
      *out = static_cast<uint32_t>(i);
      return;
    }
  }
  reader->Fail(key, fmt::format("= \"{}\" is unknown", name));
}

template <size_t kSize>
std::string_view NameAt(const std::array<std::string_view, kSize>& names, size_t index) {
  SPECD_CHECK(index < kSize);
  return names[index];
}

template <class Kind, size_t kSize>
Kind ReadKind(MapReader* reader, const std::array<std::string_view, kSize>& names) {
  uint32_t kind = 0;
  ReadName(reader, "kind", names, 0, &kind);
  return static_cast<Kind>(kind);
}

inline void ReadVersion(MapReader* reader) {
  uint32_t version = 0;
  reader->Read("v", &version);
  if (reader->ok() && version != kEventVersion) {
    reader->Fail("v", fmt::format("= {} but this reader knows {}; upgrade the {}", version,
                                  kEventVersion, version > kEventVersion ? "reader" : "publisher"));
  }
}

inline void WriteIdOrNil(MapWriter* writer, std::string_view key, TokenId id) {
  if (id == kNoToken) {
    writer->Nil(key);
  } else {
    writer->Field(key, id);
  }
}

// The one decoder of a whole payload: bytes to map, version, then `read`.
template <class Message, class ReadFn>
absl::StatusOr<Message> DecodePayload(std::string_view payload, std::string_view context,
                                      ReadFn read) {
  msgpack::object_handle body;
  if (absl::Status status = ParseMap(payload, &body); !status.ok()) return status;
  MapReader reader(body.get(), context);
  ReadVersion(&reader);
  Message message;
  read(&reader, &message);
  if (!reader.ok()) return reader.status();
  return message;
}

// A missing value stays NaN.
inline void ReadLogprob(MapReader* reader, double* out) {
  if (reader->Has(kCumulativeLogprob)) reader->Read(kCumulativeLogprob, out);
}

// An array of maps, each of them an event.
template <class Event>
void ReadEvents(MapReader* reader, void (*read)(MapReader*, Event*), std::vector<Event>* out) {
  const auto elements = reader->Array("events", kEventsMax);
  out->reserve(std::min<size_t>(elements.size(), 4096));  // and more only for events that are valid
  for (const msgpack::object* element : elements) {
    if (element->type != msgpack::type::MAP) return reader->Fail("events", "must hold maps");
    MapReader event_reader(*element, "event");
    read(&event_reader, &out->emplace_back());
    if (!event_reader.ok()) {
      return reader->Fail("events", std::string(event_reader.status().message()));
    }
  }
}

}  // namespace specd
