// specd-params prints docs/PARAMETERS.md.
//
//   specd-params > docs/PARAMETERS.md
#include <cstdio>
#include <string>

#include "tools/params_doc/params_doc.h"

int main() {
  const std::string text = specd::ParamsDoc();
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  return written && std::fflush(stdout) == 0 ? 0 : 1;
}
