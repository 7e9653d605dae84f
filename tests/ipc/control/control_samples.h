// Makes control messages for tests: a sample of each kind. A test can also take a message apart,
// change one field and put the message together again. Pure functions.
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

// Every field differs from its default.
inline OpenSequenceRequest SampleOpen() {
  OpenSequenceRequest open;
  open.request_id = "req-1";
  open.has_seed = true;
  open.seed = ~uint64_t{0};
  // No float32 holds the first number. Whole numbers would be repacked as integers below.
  open.numbers = {{"temperature", 0.1}, {"frequency_penalty", -1.5}, {"any name", 1e-300}};
  open.logit_bias_ids = {5, 6};
  open.logit_bias = {1.5, -99.5};
  open.bad_word_ids = {1, 2, 3};
  open.bad_word_lengths = {2, 1};
  open.thinking_end_ids = {8, 9};
  open.thinking_preset = "qwen3";
  open.processor_names = {"repeat_run"};
  open.processor_values = {"length=3"};
  open.stop_token_ids = {0, -1, 0x7fffffff, -0x7fffffff - 1};
  open.stop_strings = {"\n\n", "", "\xc3\xa4"};
  open.stop_regex = {"[0-9]{3}", "\xc3\xa4?b"};
  open.logprob_token_ids = {12};
  open.synthetic_rates = {0.9, 0.1};
  open.num_prompt_ids = 1;
  open.num_output_ids = 2;
  open.num_allowed_token_ids = 3;
  open.num_disallowed_token_ids = 4;
  open.num_no_repeat_ngram_whitelist = 5;
  open.num_grammar_bytes = 6;
  open.handle = 0x100020003;
  open.num_given_ids = 1;
  open.cumulative_logprob = -1.5;
  open.finish_reason = 1;
  open.stop_token = {17};
  open.refusal_code = SPECD_ERROR_UNSUPPORTED;
  open.refusal_field = "verify";
  open.refusal_text = "verify = typical is lossy";
  return open;
}

inline std::vector<Request> SampleRequests() {
  HelloRequest hello;
  hello.resumes = true;
  hello.join_token = "1f-00ff";
  hello.owner = 9;
  hello.generation = 10;
  hello.name = "toy";
  hello.version = "0.1.0";
  hello.pid = 4711;
  hello.limits = {32000, 16, 17, 8, 4, 21};
  hello.profile = "qwen3";
  return {hello,
          MappedRequest{},
          RegisterRegionRequest{uint64_t{1} << 40},
          BindTensorRequest{2, 3, {1, 64, 100, 32064, 1, true, 0.5, 30.5}},
          SampleOpen(),
          CloseSequenceRequest{uint64_t{1} << 32 | 5},
          AbortSequenceRequest{uint64_t{2} << 32 | 6},
          ForkSequenceRequest{uint64_t{2} << 32 | 6, "req-2", true, 99},
          GetStatsRequest{},
          RegisterDeviceRegionRequest{{1, "GPU-1", "00ff", 1, 2, 3, 4, 5, {}}},
          RegisterDeviceRegionRequest{
              {2, "GPU-2", "", 6, 7, 8, ~uint64_t{0}, ~uint32_t{0}, {9, ~uint64_t{0}}}},
          RegisterDeviceRegionRequest{{3, "GPU-3", "ff", 1, 0, 1, 1, 1, {}}},
          UnregisterRegionRequest{65536},
          GetGroupRequest{},
          JoinRequest{"rank", "0.1.0", 4712, "1f-00ff", 7},
          JoinRequest{"rank", "0.1.0", 4712, "1f-00ff", 7, true, true},
          DumpTraceRequest{},
          OpenSequencesRequest{3, 1200},
          OpenSequencesRequest{1, 700, true},
          GiveUpRequest{43},
          GetOpeningRequest{uint64_t{1} << 32 | 5},
          ListSequencesRequest{3, 17, "req-1", 9, true},
          AbortStreamsRequest{"req-1", 0, false},
          AbortStreamsRequest{"", 0, true},
          DrainRequest{},
          DumpSessionRequest{4},
          ListSessionsRequest{}};
}

// Every counter has another value, and the last one is the largest.
inline Counters SampleCounters() {
  Counters counters;
  uint64_t value = 0;
#define SPECD_COUNTER(name, metric, meaning) counters.name = ++value;
#include "kernels/core/counter_list.inc"
  counters.discarded = ~uint64_t{0};
  return counters;
}

inline ListedEngines SampleEngines() {
  return {{1, ~uint64_t{0}}, {0, -1}, {4711, 0}, {"python3", ""}, {"a", "b"}};
}

inline std::vector<Reply> SampleReplies() {
  return {
      HelloReply{1, ~uint64_t{0}, "0.1.0", "cuda:1", "GPU-7", "ipc:///a", "ipc:///b", "1a:2b"},
      RegionReply{7},
      SequenceReply{{uint64_t{1} << 32, ~uint64_t{0}}, {99, 100}, 3, {"/a: b", "\xc3\xa4"}},
      OkReply{},
      ErrorReply{SPECD_ERROR_REGION, "num_rows", "too many"},
      StatsReply{SampleCounters()},
      GroupReply{"1f-00ff", 0x81},
      JoinReply{3, ~uint64_t{0}, "0.1.0", 64, 1000},
      TraceReply{"/t/a.mcap", ~uint64_t{0}, 2},
      SequencesReply{{5, ~uint64_t{0}}, {6, 7}, {1, -1}, {"openings[1]: x"}, -1, 2, "n", "n = 0"},
      SequenceListReply{SampleEngines(),
                        {7, 0},
                        {"req-1", "req-2"},
                        {0, 6},
                        {5, 6},
                        {8, 9},
                        {10, 11},
                        {12, 13},
                        {"greedy", "block"},
                        {"seed = 1\n", ""},
                        true,
                        2,
                        3},
      AbortedReply{7},
      DrainReply{1, 2, 4711},
      SessionTraceReply{3, "/t/b.mcap", 4, 5},
      SessionListReply{SampleEngines(),
                       {"", "qwen3"},
                       {8, 9},
                       {10, 11},
                       {12, 0},
                       {13, 14},
                       {15, 16},
                       {17, 18},
                       {19, 20},
                       {21, 22},
                       {0, 23},
                       {24, 25}}};
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

// The body of a message, taken apart. A test changes one field and puts the body together again.
using Body = std::vector<std::pair<msgpack::object, msgpack::object>>;

struct MessageParts {
  explicit MessageParts(const std::vector<uint8_t>& message)
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

// Refers to the text.
inline msgpack::object Text(const char* text) { return msgpack::object(text); }

// SampleOpen() as the reader returns it if this map replaces its numbers.
inline absl::StatusOr<Request> DecodeNumbers(const Body& numbers) {
  msgpack::zone zone;
  msgpack::object map;
  map.type = msgpack::type::MAP;
  map.via.map.size = static_cast<uint32_t>(numbers.size());
  map.via.map.ptr = static_cast<msgpack::object_kv*>(zone.allocate_align(
      (numbers.size() + 1) * sizeof(msgpack::object_kv), alignof(msgpack::object_kv)));
  for (size_t i = 0; i < numbers.size(); ++i) {
    map.via.map.ptr[i].key = numbers[i].first;
    map.via.map.ptr[i].val = numbers[i].second;
  }
  MessageParts parts(MustEncode(SampleOpen()));
  for (auto& [key, value] : parts.body) {
    if (key.as<std::string>() == "numbers") value = map;
  }
  return DecodeWhole(parts.Join());
}

}  // namespace specd
