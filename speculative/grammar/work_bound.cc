#include "speculative/grammar/work_bound.h"

namespace specd::grammar {
namespace {

thread_local WorkBound* current = nullptr;

}  // namespace

WorkBound::WorkBound(size_t units_max) : outer_(current), units_left_(units_max) { current = this; }

WorkBound::~WorkBound() { current = outer_; }

bool WorkBound::Spend(size_t units) {
  if (current == nullptr) return true;
  if (current->units_left_ < units) {
    current->units_left_ = 0;
    return false;
  }
  current->units_left_ -= units;
  return true;
}

absl::Status WorkBound::TooMuch() {
  return absl::ResourceExhaustedError(
      "the constraint takes too long to compile: shorten its repetitions, or patterns that may "
      "begin and end in many ways");
}

}  // namespace specd::grammar
