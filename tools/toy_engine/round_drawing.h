// DrawRound draws a draft and what a round kept of it, as text, for the toy engine.
//
//   +- [" verify"]
//   |  +- [" loop"]
//   |  |  `-> " runs"
//   |  `- " thread"
//   `- " daemon"
//
// Accepted draft tokens are in brackets, and an arrow names the token that specd drew after them.
// Pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace specd::toy {

struct DrawnRound {
  std::vector<int32_t> tokens = {};
  std::vector<int32_t> parents = {};  // empty: a chain
  std::vector<int32_t> path = {};     // the accepted nodes, from the root on
  int32_t last_token = -1;            // the one after them; -1: none
};

std::string DrawRound(const DrawnRound& round, const std::function<std::string(int32_t)>& text_of);

}  // namespace specd::toy
