// Grammars as people write them: what the public examples of GBNF describe, in words of our own.
#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "speculative/grammar/front_ends/ebnf.h"
#include "tests/support/grammar_reference.h"

namespace specd::grammar {
namespace {

constexpr std::string_view kArithmetic = R"ebnf(
# Lines of an equation: a formula, =, a value
root    ::= line+
line    ::= formula "=" space factor "\n"
formula ::= factor ([-+*/] space factor)*
factor  ::= (name | number | "(" space formula ")" space)
name    ::= [a-z] [a-z0-9_]* space
number  ::= [0-9]+ space
space   ::= [ \t\n]*
)ebnf";

constexpr std::string_view kList = R"ebnf(
root ::= entry+
entry ::= "- " [^\r\n\x0b\x0c\x85\u2028\u2029]+ "\n"   # no line end of Unicode
)ebnf";

constexpr std::string_view kJson = R"ebnf(
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})   # escapes
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
)ebnf";

constexpr std::string_view kChess = R"ebnf(
root      ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")+
move      ::= (pawn | piece | castle) [+#]?
piece     ::= [NBKQR] [a-h]? [1-8]? "x"? square   # file and rank tell pieces apart
pawn      ::= ([a-h] "x")? square ("=" [NBKQR])?
castle    ::= "O-O" "-O"?
square    ::= [a-h] [1-8]
)ebnf";

constexpr std::string_view kC = R"ebnf(
root       ::= function*
function   ::= type ws name "(" parameter? ")" "{" statement* "}"
type       ::= "int" | "float" | "char"
name       ::= [a-zA-Z_] [a-zA-Z_0-9]*
parameter  ::= type ws name
statement  ::= type ws name ws "=" ws sum ";"
             | name ws "=" ws sum ";"
             | name "(" (sum ("," ws sum)*)? ")" ";"
             | "return" ws sum ";"
             | "while" "(" test ")" "{" statement* "}"
             | "if" "(" test ")" "{" statement* "}" ("else" "{" statement* "}")?
             | "//" [^\n]* "\n"
test       ::= sum ("<=" | "<" | "==" | "!=" | ">=" | ">") sum
sum        ::= product (("+" | "-") product)*
product    ::= factor (("*" | "/") factor)*
factor     ::= name | [0-9]+ | "-" factor | "(" sum ")" | name "(" (sum ("," ws sum)*)? ")"
ws         ::= [ \t\n]+
)ebnf";

void CheckTexts(std::string_view text, const std::vector<std::string>& accepted,
                const std::vector<std::string>& rejected) {
  GrammarRules rules;
  const absl::StatusOr<ExprId> root = ParseEbnf(text, {}, &rules);
  REQUIRE_MESSAGE(root.ok(), std::string(root.status().message()));
  const GrammarReference reference(rules, *root);
  for (const std::string& candidate : accepted) {
    CHECK_MESSAGE(reference.Accepts(candidate), "refuses '", candidate, "'");
  }
  for (const std::string& candidate : rejected) {
    CHECK_MESSAGE(!reference.Accepts(candidate), "accepts '", candidate, "'");
  }
}

}  // namespace

TEST_SUITE("unit") {
  TEST_CASE("ebnf: arithmetic") {
    CheckTexts(kArithmetic, {"x=1\n", "x + 2 * (y1-3)=z\n", "a=1\nb = 2\n"},
               {"", "x=1", "x=+1\n", "1x=2\n", "(x=1\n", "x+=1\n"});
  }

  TEST_CASE("ebnf: a list of lines") {
    CheckTexts(kList, {"- a\n", "- a - b\n- é\n"},
               {"", "- \n", "a\n", "- a", "- a\r\n",
                "- a\xE2\x80\xA8"
                "b\n",
                "- a\xC2\x85\n"});
  }

  TEST_CASE("ebnf: JSON") {
    CheckTexts(kJson,
               {"{}", "{ }", R"({"a":1})",
                R"({"a": [1, -2.5e+1,true ,null], "b":{"é":"\u00e9\n"}})", "{\n  \"a\": \"\"\n}"},
               {"", "[]", "{a:1}", R"({"a":1,})", R"({"a":01})", R"({"a":30.5.7})", R"({"a":"\P"})",
                R"({"a":1}})", "{\"a\":\"\n\"}", R"({"a":tru})"});
  }

  TEST_CASE("ebnf: chess moves") {
    CheckTexts(kChess, {"1. e4 e5\n2. Nf3 Nc6\n", "1. e4 e5\n2. O-O O-O-O+\n10. bxc8=Q Qa1xb2#\n"},
               {"1. e4 e5\n", "1. e4\n2. e5 e5\n", "1. e9 e5\n2. a1 a2\n", "2. e4 e5\n2. a1 a2\n"});
  }

  TEST_CASE("ebnf: a part of C") {
    CheckTexts(
        kC,
        {"", "int main(){return 0;}", "int f(int x){while(x<=10){x = x+(1*-2);}return f(x);}",
         "float g(){if(a==1){// one\n}else{g(1, 2);}}"},
        {"int main(){return 0}", "int main(){return 0;", "double f(){}", "int 1f(){}",
         "int f(){x = 1+;}"});
  }
}

}  // namespace specd::grammar
