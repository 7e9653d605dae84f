// specd_engine is the handle of an Engine, for the files that define its C functions.
//
// One thread at a time is in a call of a handle: CallGate refuses another.
#pragma once

#include <memory>
#include <new>
#include <string>
#include <utility>

#include "daemon/client/api_guard.h"
#include "daemon/client/engine.h"

struct specd_engine {
  std::unique_ptr<specd::Engine> engine;
  specd::api::CallGate gate{};
};

namespace specd::api {

template <class Body>
int Use(specd_engine* engine, Body body) {
  return engine->gate.Run("engine", std::move(body));
}

// A result has a code for a failed device and no room for words. A call that brings such a result
// leaves the words as the last error. Every other successful call leaves the last error alone.
inline void TellWhy(const Engine& engine) {
  try {
    std::string why = engine.WhyDeviceFailed();
    if (!why.empty()) Fail(SPECD_OK, std::move(why));
  } catch (const std::bad_alloc&) {
    // The answer stays delivered without words of its own. The words of an older call would be
    // wrong.
    Fail(SPECD_OK, {});
  }
}

}  // namespace specd::api
