// BuildIdentity tells two builds of one version apart, for `specd --version` and for traces.
//
// The text has the source revision and the compiler, such as "1a2b3c4d5e6f, GNU 12.2.0". The
// revision is "unknown" where the sources were not a git checkout. It is that of the last commit:
// changes that are not committed do not show.
#pragma once

namespace specd {

extern const char kBuildIdentity[];

}  // namespace specd
