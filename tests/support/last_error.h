// LastErrorHas tells tests whether the text of this thread's last error has some words, after a
// call of the C interface that was refused. Any thread, each about its own error.
#pragma once

#include <string_view>

#include "ipc/include/specd/specd.h"
#include "tests/support/mentions.h"

namespace specd {

inline Mention LastErrorHas(std::string_view words) { return Mentions(specd_last_error(), words); }

}  // namespace specd
