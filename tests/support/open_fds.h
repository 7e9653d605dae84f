// CountOpenFds counts the descriptors of this process for tests of code that opens and closes
// descriptors. Not while other threads open some.
#pragma once

#include <dirent.h>

#include "kernels/core/check.h"

namespace specd {

inline int CountOpenFds() {
  int count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  SPECD_CHECK(folder != nullptr);
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

}  // namespace specd
