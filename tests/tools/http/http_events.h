// Events of a stream, as a reader of the daemon's texts gives them to TextHub. Tests of specd-http
// share them.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "daemon/reader/text_reader.h"
#include "ipc/include/specd/specd.h"

namespace specd::http {

inline ReadEvent Event(TextEventKind kind, uint64_t stream, uint64_t offset, std::string text,
                       const std::string& name = "r") {
  ReadEvent read;
  read.event.kind = kind;
  read.event.stream = stream;
  read.event.request_id = name;
  read.event.byte_offset = offset;
  read.event.text = std::move(text);
  read.event.tokens = offset + read.event.text.size();
  if (!read.event.text.empty()) {
    read.event.spans = {{static_cast<uint32_t>(read.event.text.size()), false}};
  }
  read.event.finish_reason = SPECD_FINISH_STOP;
  return read;
}

}  // namespace specd::http
