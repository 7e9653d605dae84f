// Control messages for tests: a sample of each kind, and a message taken apart so that a test can
// change one field and put it together again. Pure functions.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <msgpack.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ipc/control/control.h"
#include "ipc/include/specd/specd.h"

namespace specd {

// Every field away from its default, and signed ones below 0: of these a negative number is no
// wrong type.
inline OpenSequenceRequest SampleOpen() {
  OpenSequenceRequest open;
  open.request_id = "req-1";
  open.verify = 2;
  open.has_seed = true;
  open.seed = ~uint64_t{0};
  open.n = 3;
  open.temperature = 0.1;  // no float32 holds it
  open.top_p = 0.95;
  open.top_k = -1;
  open.min_p = 0.05;
  open.filter_order = 1;
  open.frequency_penalty = -1.5;  // whole numbers would be repacked as integers below
  open.presence_penalty = 0.3;
  open.repetition_penalty = 1.1;
  open.logit_bias_ids = {5, 6};
  open.logit_bias = {1.5, -99.5};
  open.bad_word_ids = {1, 2, 3};
  open.bad_word_lengths = {2, 1};
  open.no_repeat_ngram_size = 4;
  open.no_repeat_ngram_window = 64;
  open.thinking_budget = -100;
  open.thinking_start_id = -7;
  open.thinking_end_ids = {8, 9};
  open.thinking_newline_id = -10;
  open.thinking_preset = "qwen3";
  open.processor_names = {"repeat_run"};
  open.processor_values = {"length=3"};
  open.max_tokens = 0x7fffffff;
  open.min_tokens = 11;
  open.ignore_eos = true;
  open.stop_token_ids = {0, -1, 0x7fffffff, -0x7fffffff - 1};
  open.stop_strings = {"\n\n", "", "\xc3\xa4"};
  open.include_stop = true;
  open.skip_special_tokens = false;
  open.logprobs = -5;
  open.logprobs_mode = 3;
  open.logprob_token_ids = {12};
  open.draft_temperature = 1.3;
  open.draft_top_p = 0.9;
  open.draft_top_k = -40;
  open.draft_min_p = 0.02;
  open.draft_filter_order = 1;
  open.draft_edits = true;
  open.num_prompt_ids = 1;
  open.num_output_ids = 2;
  open.num_allowed_token_ids = 3;
  open.num_disallowed_token_ids = 4;
  open.num_no_repeat_ngram_whitelist = 5;
  return open;
}

inline std::vector<Request> SampleRequests() {
  HelloRequest hello;
  hello.name = "toy";
  hello.version = "0.1.0";
  hello.pid = 4711;
  hello.limits = {32000, 16, 17, 8, 4, 21};
  return {hello,
          MappedRequest{},
          RegisterRegionRequest{uint64_t{1} << 40},
          BindTensorRequest{2, 3, 1, 1, 64, 100, 32064, 0.5, 30.5, true},
          SampleOpen(),
          CloseSequenceRequest{uint64_t{1} << 32 | 5},
          AbortSequenceRequest{uint64_t{2} << 32 | 6},
          ForkSequenceRequest{uint64_t{2} << 32 | 6, "req-2", true, 99},
          GetStatsRequest{},
          RegisterDeviceRegionRequest{1, "GPU-1", "00ff", 1, 2, 3, 4, 5, {}},
          RegisterDeviceRegionRequest{
              2, "GPU-2", "", 6, 7, 8, ~uint64_t{0}, ~uint32_t{0}, {9, ~uint64_t{0}}},
          RegisterDeviceRegionRequest{3, "GPU-3", "ff", 1, 0, 1, 1, 1, {}},
          UnregisterRegionRequest{65536},
          GetGroupRequest{},
          JoinRequest{"rank", "0.1.0", 4712, "1f-00ff", 7}};
}

inline std::vector<Reply> SampleReplies() {
  return {HelloReply{1, ~uint64_t{0}, "0.1.0", "cpu", "ipc:///a", "ipc:///b", "1a:2b"},
          RegionReply{7},
          SequenceReply{{uint64_t{1} << 32, ~uint64_t{0}}, {99, 100}, 3},
          OkReply{},
          ErrorReply{SPECD_ERROR_REGION, "num_rows", "too many"},
          StatsReply{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ~uint64_t{0}},
          GroupReply{"1f-00ff", 0x81},
          JoinReply{3, ~uint64_t{0}, "0.1.0", 64}};
}

inline std::vector<uint8_t> MustEncode(const Request& request) {
  absl::StatusOr<std::vector<uint8_t>> bytes = EncodeRequest(request, 42);
  REQUIRE(bytes.ok());
  return *std::move(bytes);
}

inline absl::StatusOr<Request> DecodeWhole(std::span<const uint8_t> bytes) {
  absl::StatusOr<ControlHeader> header = DecodeHeader(bytes, ControlReader::kDaemon);
  if (!header.ok()) return header.status();
  return DecodeRequest(*header, bytes);
}

// The body of a message, taken apart so that a test can change one field and put it together again.
using Body = std::vector<std::pair<msgpack::object, msgpack::object>>;

struct Parts {
  explicit Parts(const std::vector<uint8_t>& message)
      : header(message.begin(), message.begin() + 24) {
    handle =
        msgpack::unpack(reinterpret_cast<const char*>(message.data()) + 24, message.size() - 24);
    const msgpack::object_map& map = handle.get().via.map;
    for (uint32_t i = 0; i < map.size; ++i) body.emplace_back(map.ptr[i].key, map.ptr[i].val);
  }
  std::vector<uint8_t> Join() const {
    msgpack::sbuffer buffer;
    msgpack::packer<msgpack::sbuffer> packer(buffer);
    packer.pack_map(static_cast<uint32_t>(body.size()));
    for (const auto& [key, value] : body) {
      packer.pack(key);
      packer.pack(value);
    }
    std::vector<uint8_t> message = header;
    message.insert(message.end(), buffer.data(), buffer.data() + buffer.size());
    const auto size = static_cast<uint32_t>(buffer.size());
    std::memcpy(message.data() + 8, &size, sizeof(size));
    return message;
  }
  std::string KeyAt(size_t i) const { return body[i].first.as<std::string>(); }

  std::vector<uint8_t> header;
  msgpack::object_handle handle;
  Body body;
};

}  // namespace specd
