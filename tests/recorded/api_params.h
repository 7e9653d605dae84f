// ApiParams turns the parameters of a recorded life into specd_params for the player.
//
// It owns the memory that the C struct points at, so it must outlive the call that takes the
// struct. A parameter is "NAME=TEXT". TEXT is a number, a word, numbers with spaces between, or
// texts with "," between. Thread-compatible.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/include/specd/specd.h"

namespace specd::recorded {

class ApiParams {
 public:
  // Throws std::runtime_error for an unknown name or text.
  explicit ApiParams(const std::vector<std::string>& params);
  ApiParams(const ApiParams&) = delete;
  ApiParams& operator=(const ApiParams&) = delete;

  const specd_params& params() const { return params_; }

  // All names that a recording may use.
  static std::vector<std::string> Names();

  // ---- for the table of names
  specd_params* mutable_params() { return &params_; }
  specd_ids Ids(std::string_view text);
  specd_floats Floats(std::string_view text);
  specd_strings Strings(std::string_view text);
  const char* Word(std::string_view text);
  void SetProcessors(std::string_view text);

 private:
  specd_params params_;
  // Deques, because their elements do not move.
  std::deque<std::vector<int32_t>> ids_;
  std::deque<std::vector<float>> floats_;
  std::deque<std::string> words_;
  std::deque<std::vector<const char*>> pointers_;
  std::vector<specd_processor> processors_;
};

}  // namespace specd::recorded
