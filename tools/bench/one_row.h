// BindOneRow gives a session one target row that likes one id far best, for scenes whose rounds do
// not depend on a model.
//
//   if (absl::Status s = BindOneRow(session.get(), /*best=*/7); !s.ok()) return s;
#pragma once

#include "absl/status/status.h"
#include "daemon/session/session.h"

namespace specd::bench {

// The row is so high at `best` that every coin draws it.
absl::Status BindOneRow(Session* session, TokenId best);

}  // namespace specd::bench
