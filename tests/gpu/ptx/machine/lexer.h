// Tokenize cuts the text of a PTX module into words for the parser.
//
// Names keep their dots and colons (`st.shared::cluster.u32`), and a minus sign stays with the
// number behind it. Comments are left out. PTX ISA, "Syntax".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace specd::ptx {

struct Token {
  std::string text;
  int line = 0;
};

std::vector<Token> Tokenize(std::string_view text);

}  // namespace specd::ptx
