#include "speculative/grammar/compile_work.h"

namespace specd::grammar {
namespace {

thread_local CompileWork* current = nullptr;

}  // namespace

CompileWork::CompileWork(size_t units_max) : outer_(current), units_left_(units_max) {
  current = this;
}

CompileWork::~CompileWork() { current = outer_; }

bool CompileWork::Spend(size_t units) {
  if (current == nullptr) return true;
  if (current->units_left_ < units) {
    current->units_left_ = 0;
    return false;
  }
  current->units_left_ -= units;
  return true;
}

absl::Status CompileWork::TooMuch() {
  return absl::ResourceExhaustedError(
      "the constraint takes too long to compile: shorten its repetitions, or patterns that may "
      "begin and end in many ways");
}

}  // namespace specd::grammar
