// RunWarp runs one emulated warp for tests of what its lanes do together: all 32 lanes call the
// function that it gets, each with its own team. An error of the emulation fails the test.
#pragma once

#include <doctest/doctest.h>

#include "tests/gpu/emulation/emulated_block.h"

namespace specd {

template <typename Look>
void RunWarp(const Look& look) {
  REQUIRE(RunEmulatedBlock({.num_threads = 32}, [&](EmulatedThread thread) {
            EmulatedTeam team(thread);
            look(team);
          }) == "");
}

}  // namespace specd
